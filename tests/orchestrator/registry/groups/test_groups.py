"""Groups found by what a person calls them, and compared over seeds and over kept predictions.

pytest tests/orchestrator/registry/groups/test_groups.py
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from orchestrator.errors import InputError, NotFoundError, SeveralRunsError
from orchestrator.registry import Registry
from orchestrator.registry.tables import RunRow
from orchestrator.registry.trial_rows import trial_id
from orchestrator.results import MetricEvent
from orchestrator.run_states import RunState
from tests.orchestrator.registry.samples import new_run, trial_result

RECIPE = {"learning_rate": 1e-4, "seed": 0}


def group_of(
    registry: Registry, rate: float, scores: Sequence[float], *, metric: str = "accuracy", data: str = "v", **rest: Any
) -> str:
    """Record a sweep of one group, a trial for each score, and return its id.

    Args:
        rest: `folder`, where each trial keeps predictions of 200 examples that are right as often as it scored.
    """
    spec = {"kind": "sweep", "task": {"id": "sst2"}, "recipe": RECIPE}
    sweep = new_run(registry, kind="sweep", spec=spec, task="sst2", metric=metric)
    registry.trials.set_data(sweep, {"validation": data})
    registry.trials.record(
        sweep,
        [
            trial_result(
                f"k{seed}",
                seed=seed,
                number=seed,
                parameters={"learning_rate": rate},
                metrics={metric: score},
                predictions_path=keep_predictions(rest["folder"], sweep, seed, score) if rest else None,
            )
            for seed, score in enumerate(scores)
        ],
    )
    return sweep


def keep_predictions(folder: Path, sweep: str, seed: int, score: float) -> str:
    """Write predictions of 200 examples, of which a share is right, and return their path."""
    rng, rows = random.Random(f"{sweep}{seed}"), []
    right = set(rng.sample(range(200), round(200 * score)))
    for number in range(200):
        gold = str(number % 2)
        predicted = gold if number in right else str(1 - number % 2)
        probabilities = {"0": 0.5, "1": 0.5}
        correct = predicted == gold
        rows.append(
            {"id": number, "prediction": predicted, "gold": gold, "correct": correct, "probabilities": probabilities}
        )
    path = folder / f"{sweep}-{seed}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_group_is_found_by_its_beginning_by_a_trial_and_by_its_sweep(registry: Registry) -> None:
    sweep = group_of(registry, 1e-5, [0.8, 0.9])
    whole = registry.group(sweep)
    assert (whole.scores, whole.task, whole.metric, whole.data) == ([0.8, 0.9], "sst2", "accuracy", "v")
    assert registry.group(whole.key[:6]) == whole
    assert registry.group(trial_id(sweep, "k1")).scores == [0.9]
    assert [group.key for group in registry.groups("sst2")] == [whole.key]


def test_a_sweep_stands_for_its_own_trials_alone(registry: Registry) -> None:
    sweeps = [group_of(registry, 1e-5, [score]) for score in (0.7, 0.9)]
    assert [registry.group(sweep).scores for sweep in sweeps] == [[0.7], [0.9]]
    assert registry.group(registry.group(sweeps[0]).key).scores == [pytest.approx(0.8)]


def test_a_group_of_before_the_code_was_recorded_is_named_beside_its_twin(registry: Registry) -> None:
    sweeps = [group_of(registry, 1e-5, [score]) for score in (0.7, 0.9)]
    with registry._database.session(writing=True) as session:
        for sweep, code in zip(sweeps, (None, "0.2.0+abc"), strict=True):
            session.execute(update(RunRow).where(RunRow.parent_id == sweep).values(code_version=code))
    before, twin = (registry.group(sweep) for sweep in sweeps)
    assert twin.key.startswith(f"{before.key}.")
    assert len(twin.key.partition(".")[2]) == 8, "few versions of the code share so many digits"
    for name in (before.key, before.label, before.label.upper()):
        assert registry.group(name).scores == [0.7]
    for name in (twin.key, twin.label, twin.key[:-2]):
        assert registry.group(name).scores == [0.9]
    with pytest.raises(NotFoundError, match="begins the digests of several groups"):
        registry.group(before.key[:6])


def test_what_is_no_group_is_told_with_what_there_is(registry: Registry) -> None:
    sweep = group_of(registry, 1e-5, [0.8])
    registry.trials.record(sweep, [trial_result("other", seed=3, number=9, metrics={"accuracy": 0.1})])
    with pytest.raises(InputError, match=rf"{sweep} has 2 groups of trials; name one of them"):
        registry.group(sweep)
    with pytest.raises(NotFoundError, match="No group's digest begins with 'nothere'"):
        registry.group("nothere")
    with pytest.raises(NotFoundError):
        registry.group("")
    with pytest.raises(InputError, match="has no score that ranks"):
        registry.group(new_run(registry))


def test_a_name_that_a_groups_digest_begins_with_is_refused_with_both(registry: Registry) -> None:
    key = registry.group(group_of(registry, 1e-5, [0.8])).key
    other = group_of(registry, 2e-5, [0.9])
    with registry._database.session(writing=True) as session:
        session.execute(update(RunRow).where(RunRow.id == other).values(name=key[:4]))
    with pytest.raises(SeveralRunsError, match=other):
        registry.group(key[:4])


def test_groups_whose_shown_digits_are_equal_are_listed_with_more_of_them(registry: Registry) -> None:
    digests = {group_of(registry, 1e-5, [0.8]): digest for digest in ("0f1f0cd06aaaaaaa", "0f1f0cd0abbbbbbb")}
    with registry._database.session(writing=True) as session:
        for sweep, digest in digests.items():
            changed = update(RunRow).where(RunRow.parent_id == sweep)
            session.execute(changed.values(group_key=digest, code_version=None))
    with pytest.raises(SeveralRunsError, match="give more of it: 0f1f0cd06, 0f1f0cd0a"):
        registry.group("0f1f0cd0")
    assert [registry.group(digest[:9]).key for digest in digests.values()] == [*digests.values()]


def test_a_longer_label_without_code_means_the_group_of_before_the_code(registry: Registry) -> None:
    sweeps = [group_of(registry, 1e-5, [score]) for score in (0.7, 0.9)]
    with registry._database.session(writing=True) as session:
        for sweep, code in zip(sweeps, (None, "0.2.0+abc"), strict=True):
            session.execute(update(RunRow).where(RunRow.parent_id == sweep).values(code_version=code))
    assert registry.group(registry.group(sweeps[0]).key[:10]).scores == [0.7]


def test_six_common_seeds_are_compared_in_pairs(registry: Registry) -> None:
    easy = [0.70, 0.75, 0.80, 0.72, 0.78, 0.74]
    one, other = group_of(registry, 1e-5, [score + 0.02 for score in easy]), group_of(registry, 2e-5, easy)
    (found,) = registry.compare(one, other)
    assert found.seeds.test == "paired permutation over 6 common seeds"
    assert found.p_value == 2 / 64
    assert found.is_distinguishable
    assert found.seeds.welch.p_value is not None
    assert found.seeds.welch.p_value > 0.05, "what differs between seeds hides what differs between groups"
    assert found.words == (
        "distinguishable: the first is better, difference 2.0 points, 95 % interval 2.0 to 2.0 points, p = 0.031 "
        "(paired permutation over 6 common seeds)"
    )


def test_fewer_seeds_are_compared_by_welchs_test_and_the_answer_says_how_many_would_do(registry: Registry) -> None:
    one, other = group_of(registry, 1e-5, [0.80, 0.82, 0.81]), group_of(registry, 2e-5, [0.80, 0.81, 0.82, 0.805])
    (found,) = registry.compare(one, other)
    assert (found.seeds.num_first, found.seeds.num_second, found.seeds.num_common) == (3, 4, 3)
    assert found.is_distinguishable is False
    assert found.words.startswith(
        "not distinguishable: difference 0.1 points, 95 % interval -1.9 to 2.1 points, p = 0.87"
    )
    assert found.words.endswith(
        "(Welch's test over 3 and 4 seeds); about 870 seeds each would settle a difference of this size"
    )
    assert found.seeds.num_seeds_needed == 870
    assert found.differs_in == {"recipe.learning_rate": (1e-5, 2e-5)}


def test_the_better_one_of_a_score_that_falls_has_less(registry: Registry) -> None:
    one = group_of(registry, 1e-5, [5.0, 5.1, 5.05], metric="perplexity")
    other = group_of(registry, 2e-5, [9.0, 9.1, 9.05], metric="perplexity")
    (found,) = registry.compare(one, other)
    assert found.words.startswith("distinguishable: the first is better, difference -4, 95 % interval -4.1")
    assert registry.compare(other, one)[0].words.startswith("distinguishable: the second is better, difference 4")


def test_one_seed_each_without_predictions_tells_nothing(registry: Registry) -> None:
    one, other = group_of(registry, 1e-5, [0.9]), group_of(registry, 2e-5, [0.5])
    (found,) = registry.compare(one, other)
    assert (found.p_value, found.corrected_p_value, found.is_distinguishable) == (None, None, None)
    assert found.words.startswith(
        "nothing can tell: difference 40.0 points cannot be held against the noise of seeds (one seed)"
    )


def test_two_seeds_that_score_the_same_on_each_side_tell_nothing(registry: Registry) -> None:
    one, other = group_of(registry, 1e-5, [0.81, 0.81]), group_of(registry, 2e-5, [0.80, 0.80])
    (found,) = registry.compare(one, other)
    assert (found.seeds.test, found.p_value, found.is_distinguishable) == ("", None, None)
    assert "noise of seeds (two seeds that score the same), and no predictions" in found.words
    assert [row["tie"] for row in registry.leaderboard_table().records] == [None, None]


@pytest.mark.parametrize("num_seeds", [3, 7])
def test_collapsed_seeds_of_two_recipes_tell_nothing(registry: Registry, num_seeds: int) -> None:
    one, other = group_of(registry, 1e-5, [0.684] * num_seeds), group_of(registry, 2e-5, [0.686] * num_seeds)
    (found,) = registry.compare(one, other)
    assert (found.seeds.test, found.p_value, found.is_distinguishable) == ("", None, None)
    assert f"noise of seeds ({num_seeds} seeds that score the same), and no predictions" in found.words


def test_seven_pairs_speak_although_one_side_collapsed(registry: Registry) -> None:
    one = group_of(registry, 1e-5, [0.80, 0.86, 0.74, 0.81, 0.79, 0.82, 0.78])
    (found,) = registry.compare(one, group_of(registry, 2e-5, [0.684] * 7))
    assert (found.seeds.test, found.p_value) == ("paired permutation over 7 common seeds", 2 / 128)
    assert found.seeds.welch.p_value is None


def test_two_models_are_compared_by_their_answers(registry: Registry, tmp_path: Path) -> None:
    one = group_of(registry, 1e-5, [0.95], folder=tmp_path)
    other = group_of(registry, 2e-5, [0.6], folder=tmp_path)
    (found,) = registry.compare(trial_id(one, "k0"), trial_id(other, "k0"))
    assert found.examples is not None
    (answers,) = found.examples.answers
    assert answers.result.only_first - answers.result.only_second == 70
    assert found.p_value == answers.result.p_value
    assert found.words.startswith("these two models are distinguishable: difference 35.0 points, 95 % interval")
    assert "(McNemar's exact test over 200 examples); one seed: whether further seeds would say so" in found.words


@pytest.mark.parametrize(("metric", "about"), [("accuracy", "right answers"), ("f1", "wholly right examples")])
def test_what_mcnemars_test_counts_is_told(registry: Registry, tmp_path: Path, metric: str, about: str) -> None:
    """McNemar's test counts examples without an error, which is not the F1 of entities and answers."""
    runs = [
        trial_id(group_of(registry, rate, [score], metric=metric, folder=tmp_path), "k0")
        for rate, score in ((1e-5, 0.9), (2e-5, 0.6))
    ]
    (found,) = registry.compare(*runs)
    assert found.examples is not None
    assert found.examples.answers_about == about


def test_two_models_of_a_regression_are_compared_by_the_ranks_of_their_values(
    registry: Registry, tmp_path: Path
) -> None:
    sweeps = [group_of(registry, rate, [score], metric="spearman") for rate, score in ((1e-5, 0.9), (2e-5, 0.6))]
    for sweep, noise in zip(sweeps, (0.5, 2.0), strict=True):
        rng, path = random.Random(noise), tmp_path / f"{sweep}.jsonl"
        values = [(n, n % 6, n % 6 + rng.gauss(0, noise)) for n in range(200)]
        path.write_text("".join(json.dumps({"id": n, "gold": g, "prediction": p}) + "\n" for n, g, p in values))
        with registry._database.session(writing=True) as session:
            kept = update(RunRow).where(RunRow.id == trial_id(sweep, "k0")).values(predictions_path=str(path))
            session.execute(kept)
    (found,) = registry.compare(*sweeps)
    assert found.words.startswith("these two models are distinguishable: difference ")
    assert "p = under 0.001 (paired bootstrap over 200 examples); one seed" in found.words


def test_seeds_speak_before_examples_and_every_pair_of_runs_is_compared(registry: Registry, tmp_path: Path) -> None:
    one = group_of(registry, 1e-5, [0.80, 0.82, 0.81], folder=tmp_path)
    other = group_of(registry, 2e-5, [0.80, 0.81, 0.82], folder=tmp_path)
    (found,) = registry.compare(one, other)
    assert found.p_value == found.seeds.p_value == 1.0
    assert found.examples is not None
    assert [answers.first_run for answers in found.examples.answers] == [trial_id(one, f"k{n}") for n in range(3)]
    assert found.examples.score is not None
    assert found.examples.score.difference == pytest.approx(0.0)
    assert found.examples.num_examples == 200


def test_predictions_that_are_gone_leave_the_seeds(registry: Registry, tmp_path: Path) -> None:
    one = group_of(registry, 1e-5, [0.80, 0.82], folder=tmp_path)
    other = group_of(registry, 2e-5, [0.80, 0.81], folder=tmp_path)
    for path in tmp_path.glob(f"{other}*"):
        path.unlink()
    (found,) = registry.compare(one, other)
    assert found.examples is None
    assert found.seeds.p_value is not None


def test_several_comparisons_are_corrected(registry: Registry) -> None:
    sweeps = [
        group_of(registry, number * 1e-5, [0.5 + number / 100 + seed / 200 for seed in range(4)]) for number in range(3)
    ]
    found = registry.compare(*sweeps)
    assert [(one.first.key, one.second.key) for one in found] == [
        tuple(registry.group(sweeps[place]).key for place in places) for places in ((0, 1), (0, 2), (1, 2))
    ]
    plain = [one.p_value for one in found if one.p_value is not None]
    corrected = [one.corrected_p_value for one in found if one.corrected_p_value is not None]
    assert len(plain) == len(corrected) == 3
    assert corrected[plain.index(min(plain))] == pytest.approx(3 * min(plain))
    assert all("; corrected for 3 comparisons (Holm): p = " in one.words for one in found)


def test_six_common_seeds_can_tell_three_groups_apart(registry: Registry) -> None:
    """The least p-value of six pairs is 0.031, which no correction for three comparisons would leave below 0.05."""
    easy = [0.50, 0.51, 0.49, 0.50, 0.51, 0.49]
    sweeps = [group_of(registry, number * 1e-5, [score + number / 10 for score in easy]) for number in range(3)]
    found = registry.compare(*sweeps)
    assert [one.seeds.test for one in found] == ["Welch's test over 6 and 6 seeds"] * 3
    assert all(one.is_distinguishable for one in found)
    (alone,) = registry.compare(*sweeps[:2])
    assert alone.seeds.test == "paired permutation over 6 common seeds"


def test_what_cannot_be_told_apart_alone_is_not_said_to_be(registry: Registry) -> None:
    """Alone six pairs would be permuted, which tell nothing here; Welch's test, of several comparisons, nearly does."""
    drawn = random.Random(4)
    first = [0.5 + drawn.gauss(0, 0.01) for _ in range(6)]
    second = [0.515 + drawn.gauss(0, 0.01) for _ in range(6)]
    sweeps = [group_of(registry, 1e-5 * number, scores) for number, scores in enumerate((first, second, first[::-1]))]
    (alone,) = registry.compare(*sweeps[:2])
    among = registry.compare(*sweeps)[0]
    assert (alone.is_distinguishable, among.is_distinguishable) == (False, False)
    assert among.p_value is not None
    assert among.p_value < 0.05, "the example is of no use otherwise"
    assert among.words.startswith("not distinguishable among 3 comparisons: difference")


def test_a_group_that_nothing_tells_of_does_not_change_the_test_of_others(registry: Registry) -> None:
    easy = [0.70, 0.75, 0.80, 0.72, 0.78, 0.74]
    one, other = group_of(registry, 1e-5, [score + 0.02 for score in easy]), group_of(registry, 2e-5, easy)
    found = registry.compare(one, other, group_of(registry, 3e-5, [0.5]))
    assert [comparison.p_value for comparison in found] == [2 / 64, None, None]
    assert found[0].words == registry.compare(one, other)[0].words


def test_what_a_correction_hides_is_told(registry: Registry) -> None:
    """Seven pairs can be told apart among three comparisons, and as many seeds are said to do."""
    noise = [0.001, 0.022, 0.013, 0.004, 0.025, 0.016, 0.007]
    ups = [0.011, 0.012, 0.010, 0.013, 0.011, 0.012, -0.0001]
    groups = (noise, [score + up for score, up in zip(noise, ups, strict=True)], [score + 0.0002 for score in noise])
    found = registry.compare(*(group_of(registry, 1e-5 * number, list(own)) for number, own in enumerate(groups)))
    assert found[0].seeds.test == "paired permutation over 7 common seeds"
    assert found[0].p_value is not None
    assert found[0].p_value < 0.05 < (found[0].corrected_p_value or 0)
    assert found[0].words.startswith(
        "not distinguishable among 3 comparisons, though alone they would be by paired permutation over 7 common seeds "
        "(p = 0.031): difference -1.0 points"
    )


def test_what_was_not_scored_alike_is_not_compared(registry: Registry) -> None:
    one = group_of(registry, 1e-5, [0.8, 0.9])
    with pytest.raises(InputError, match=r"the data of one is v, of the other w; .* a spec with `kind: evaluate`"):
        registry.compare(one, group_of(registry, 2e-5, [0.8, 0.9], data="w"))
    with pytest.raises(InputError, match="the score of one is accuracy, of the other f1"):
        registry.compare(one, group_of(registry, 2e-5, [0.8, 0.9], metric="f1"))
    with pytest.raises(InputError, match="cannot be compared: no run of it completed with a score"):
        registry.compare(one, group_of(registry, 3e-5, [float("nan")]))
    with pytest.raises(InputError, match="are the same runs"):
        registry.compare(one, registry.group(one).key)
    with pytest.raises(InputError, match="name at least two"):
        registry.compare(one)


def test_evaluations_of_two_models_are_compared(registry: Registry, tmp_path: Path) -> None:
    runs = []
    for model, score in (("a@1", 0.9), ("b@1", 0.6)):
        spec = {"kind": "evaluate", "model": model, "task": {"id": "sst2"}, "split": "test"}
        run = new_run(registry, kind="evaluate", spec=spec, task="sst2", metric="accuracy")
        registry.lifecycle.start_attempt(run)
        registry.trials.set_data(run, {"test": "t"})
        registry.metrics.record(run, [MetricEvent(0, "test", {"accuracy": score})], final=True)
        path = keep_predictions(tmp_path, run, 0, score)
        registry.lifecycle.finish(run, RunState.COMPLETED, predictions_path=path)
        runs.append(run)
    (found,) = registry.compare(*runs)
    assert found.is_distinguishable
    assert found.examples is not None
    assert found.examples.test == "McNemar's exact test over 200 examples"
