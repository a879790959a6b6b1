"""Groups, found and compared. Alone: pytest tests/orchestrator/registry/test_groups.py"""

import dataclasses
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from orchestrator.base.errors import InputError, NotFoundError, SeveralRunsError
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.registry.group_comparison import Comparison, compare_examples, compare_groups, read_predictions
from orchestrator.registry.group_records import group_notes
from orchestrator.registry.tables import ALL_RUNS
from tests.orchestrator.registry.group_samples import evaluated, group_of, new_sweep, seeds
from tests.orchestrator.registry.samples import new_run, trial_result


def compared(*scores: Sequence[float], metric: str = "accuracy") -> list[Comparison]:
    """Comparison of groups with these scores, a seed for each."""
    groups = [group_of(f"{number:016}", list(each), metric) for number, each in enumerate(scores)]
    return compare_groups([group.key for group in groups], groups)


def keep_predictions(folder: Path, name: str, score: float, first: int = 0) -> str:
    """Write predictions of 200 examples, of which a share is right, and return their path."""
    right, rows = set(random.Random(name).sample(range(200), round(200 * score))), []
    for number in range(200):
        gold, other = str(number % 2), str(1 - number % 2)
        answer = {"id": first + number, "prediction": gold if number in right else other, "gold": gold}
        rows.append({**answer, "correct": number in right, "probabilities": {"0": 0.5, "1": 0.5}})
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def answered(folder: Path, key: str, scores: Sequence[float]) -> Any:
    """A group whose runs kept their predictions."""
    group = group_of(key, list(scores))
    runs = [run._replace(predictions_path=keep_predictions(folder, run.id, run.score or 0.0)) for run in group.runs]
    return dataclasses.replace(group, runs=runs)


def test_a_group_is_found_by_its_beginning_by_a_trial_and_by_its_sweep(registry: Registry) -> None:
    sweep = seeds(registry, [0.8, 0.9])
    whole = registry.group(sweep)
    assert (whole.scores, whole.task, whole.metric) == ([0.8, 0.9], "sst2", "accuracy")
    assert registry.group(whole.key[:6]) == whole
    trials = registry.trials.table(sweep).values("id")
    assert [registry.group(trial).scores for trial in trials] == [[0.8], [0.9]]
    assert registry.leaderboard("sst2").values("group") == [whole.key]


def test_a_sweep_stands_for_its_own_trials_alone(registry: Registry) -> None:
    sweeps = [seeds(registry, [score]) for score in (0.7, 0.9)]
    assert [registry.group(sweep).scores for sweep in sweeps] == [[0.7], [0.9]]
    assert registry.group(registry.group(sweeps[0]).key).scores == [pytest.approx(0.8)]


def test_a_group_has_no_archived_runs_unless_it_has_no_others(registry: Registry) -> None:
    shown, hidden = seeds(registry, [0.7]), seeds(registry, [0.9], first=1)
    key = registry.group(shown).key
    registry.annotations.set_flag(hidden, "archived")
    assert registry.group(key).scores == [0.7]
    registry.annotations.set_flag(shown, "archived")
    assert registry.group(key).scores == [0.7, 0.9]


def test_trials_whose_seeds_have_start_models_of_their_own_are_a_group(registry: Registry) -> None:
    sweep, starts = new_sweep(registry), "words.0@1 | words.1@1"
    for seed, score in enumerate((0.7, 0.9)):
        seeds(registry, [score], first=seed, sweep=sweep, init_from=starts, start=f"words.{seed}@1")
    (row,) = registry.leaderboard("sst2").records
    assert (row["n"], row["mean"], row["init_from"]) == (2, pytest.approx(0.8), starts)
    seeds(registry, [0.5], first=2, sweep=sweep, init_from="words.0@1")
    assert registry.leaderboard("sst2").values("n") == [2, 1]


def test_what_is_no_group_is_told_with_what_there_is(registry: Registry) -> None:
    sweep = seeds(registry, [0.8])
    seeds(registry, [0.1], sweep=sweep, learning_rate=1e-5)
    with pytest.raises(InputError, match=f"{sweep} stands for 2 groups"):
        registry.group(sweep)
    for unknown in ("nothere", ""):
        with pytest.raises(NotFoundError, match=f"No group's id begins with '{unknown}'"):
            registry.group(unknown)
    with pytest.raises(InputError, match="has no score that ranks"):
        registry.group(new_run(registry))


def test_a_name_that_a_groups_digest_begins_with_is_refused_with_both(registry: Registry) -> None:
    key = registry.group(seeds(registry, [0.8])).key
    other = seeds(registry, [0.9], learning_rate=2e-5)
    with registry._database.connection(writing=True) as connection:
        connection.execute(update(ALL_RUNS).where(ALL_RUNS.c.id == other).values(name=key[:4]))
    with pytest.raises(SeveralRunsError, match=other):
        registry.group(key[:4])


def test_six_common_seeds_are_compared_in_pairs() -> None:
    easy = [0.70, 0.75, 0.80, 0.72, 0.78, 0.74]
    (found,) = compared([score + 0.02 for score in easy], easy)
    assert (found.test, found.p_value) == ("paired permutation over 6 common seeds", 2 / 64)
    assert found.is_distinguishable
    assert found.welch.p_value is not None
    assert found.welch.p_value > 0.05, "what differs between seeds hides what differs between groups"
    assert found.words == (
        "distinguishable: the first is better, difference 2.0 points, 95 % interval 2.0 to 2.0 points, p = 0.031 "
        "(paired permutation over 6 common seeds)"
    )


def test_fewer_seeds_are_compared_by_welchs_test_and_the_answer_says_how_many_would_do() -> None:
    (found,) = compared([0.80, 0.82, 0.81], [0.80, 0.81, 0.82, 0.805])
    assert (len(found.differences), found.is_distinguishable, found.num_seeds_needed) == (3, False, 870)
    assert found.words.startswith("not distinguishable: difference 0.1 points, 95 % interval -1.9 to 2.1 points")
    assert found.words.endswith("about 870 seeds each would settle a difference of this size")
    assert found.differs_in == {"recipe.key": (found.first.key, found.second.key)}


def test_the_better_one_of_a_score_that_falls_has_less() -> None:
    low, high = [5.0, 5.1, 5.05], [9.0, 9.1, 9.05]
    (found,), (turned,) = (compared(*both, metric="perplexity") for both in ((low, high), (high, low)))
    assert found.words.startswith("distinguishable: the first is better, difference -4, 95 % interval -4.1")
    assert turned.words.startswith("distinguishable: the second is better, difference 4")


@pytest.mark.parametrize(
    ("num_seeds", "noise"), [(1, "one seed"), (3, "3 seeds that score the same"), (7, "7 seeds that score the same")]
)
def test_seeds_without_noise_and_predictions_tell_nothing(num_seeds: int, noise: str) -> None:
    (found,) = compared([0.684] * num_seeds, [0.686] * num_seeds)
    assert (found.test, found.p_value, found.corrected_p_value, found.is_distinguishable) == ("", None, None, None)
    assert f"noise of seeds ({noise})" in found.words


def test_two_models_are_compared_by_their_answers(tmp_path: Path) -> None:
    (found,) = compare_groups("ab", [answered(tmp_path, "a", [0.95]), answered(tmp_path, "b", [0.6])])
    assert found.examples is not None
    (answers,) = found.examples.answers
    assert answers.result.only_first - answers.result.only_second == 70
    assert found.p_value == answers.result.p_value
    assert found.words.startswith("these two models are distinguishable: difference 35.0 points, 95 % interval")
    assert "(McNemar's exact test over 200 examples); one seed: whether further seeds would say so" in found.words


def test_seeds_speak_before_examples_and_every_pair_of_runs_is_compared(tmp_path: Path) -> None:
    groups = [answered(tmp_path, "a", [0.80, 0.82, 0.81]), answered(tmp_path, "b", [0.80, 0.81, 0.82])]
    (found,) = compare_groups("ab", groups)
    assert found.p_value == found.of_seeds.p_value == 1.0
    assert found.examples is not None
    assert [answers.first_run for answers in found.examples.answers] == ["a0", "a1", "a2"]
    assert found.examples.score is not None
    assert found.examples.score.difference == pytest.approx(0.0)
    assert found.examples.num_examples == 200


def test_folds_are_no_seeds(registry: Registry, tmp_path: Path) -> None:
    groups = []
    for rate in (1e-5, 2e-5):
        sweep = new_sweep(registry, split={"folds": 2})
        trials = []
        for number, score in enumerate([0.5, 0.7, 0.6, 0.9]):
            seed, fold = divmod(number, 2)
            path = keep_predictions(tmp_path, f"{sweep}{number}", score, 200 * fold)
            parameters, metrics = {"learning_rate": rate, "fold": fold}, {"accuracy": score}
            given = {"number": number, "seed": seed, "parameters": parameters, "metrics": metrics}
            trials.append(trial_result(f"k{number}", **given, predictions_path=path))
        registry.trials.record(sweep, trials)
        groups.append(sweep)
    group = registry.group(groups[0])
    assert group.scores == pytest.approx([0.6, 0.75])
    assert sorted((run.seed, run.fold) for run in group.runs) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert not any("times" in note for note in group_notes(group)), "no seed ran again"
    board = registry.leaderboard("sst2").frame()
    assert board[["n", "folds"]].values.tolist() == [[2, 2], [2, 2]]
    assert board["mean"].tolist() == pytest.approx([0.675, 0.675])
    failed = trial_result("k3", number=3, seed=1, parameters={"learning_rate": 2e-5, "fold": 1}, state=RunState.FAILED)
    half = new_sweep(registry, split={"folds": 2})
    registry.trials.record(half, [*trials[:3], failed])
    assert registry.group(half).scores == pytest.approx([0.6]), "a seed that lacks a fold has no score"
    assert registry.trials.table(half).records[0]["params.folds"] == 2
    (found,) = registry.compare(*groups)
    assert len(found.differences) == 2
    assert found.examples is not None
    assert found.examples.num_examples == 400, "the folds of a seed are compared as one"


def test_several_comparisons_are_corrected() -> None:
    found = compared(*([0.5 + number / 100 + seed / 200 for seed in range(4)] for number in range(3)))
    assert [(int(one.first.key), int(one.second.key)) for one in found] == [(0, 1), (0, 2), (1, 2)]
    plain = [one.p_value for one in found if one.p_value is not None]
    corrected = [one.corrected_p_value for one in found if one.corrected_p_value is not None]
    assert len(plain) == len(corrected) == 3
    assert corrected[plain.index(min(plain))] == pytest.approx(3 * min(plain))
    assert all("; corrected for 3 comparisons (Holm): p = " in one.words for one in found)


def test_six_common_seeds_can_tell_three_groups_apart() -> None:
    """The least p-value of six pairs is 0.031, which no correction for three comparisons would leave below 0.05."""
    easy = [0.50, 0.51, 0.49, 0.50, 0.51, 0.49]
    groups = [[score + number / 10 for score in easy] for number in range(3)]
    found = compared(*groups)
    assert [one.test for one in found] == ["Welch's test over 6 and 6 seeds"] * 3
    assert all(one.is_distinguishable for one in found)
    assert compared(*groups[:2])[0].test == "paired permutation over 6 common seeds"


def test_what_was_not_scored_alike_is_not_compared() -> None:
    one, other = group_of("a", [0.8, 0.9]), group_of("b", [0.8, 0.9])
    for second, message in (
        (dataclasses.replace(other, data="w"), "their data is None and w; .* `kind: evaluate`"),
        (group_of("b", [0.8], "f1"), "their metric is accuracy and f1"),
        (group_of("b", [float("nan")]), "cannot be compared: no run of it completed with a score"),
        (one, "are the same runs"),
    ):
        with pytest.raises(InputError, match=message):
            compare_groups("ab", [one, second])
    with pytest.raises(InputError, match="name at least two"):
        compare_groups("a", [one])


def test_evaluations_of_two_models_are_compared(registry: Registry, tmp_path: Path) -> None:
    kept = {f"{model}@1": keep_predictions(tmp_path, model, score) for model, score in (("a", 0.9), ("b", 0.6))}
    runs = [evaluated(registry, "test", "t", 0.9, model, predictions_path=path) for model, path in kept.items()]
    (found,) = registry.compare(*runs)
    assert found.is_distinguishable
    assert found.examples is not None
    assert found.examples.test == "McNemar's exact test over 200 examples"


@pytest.mark.parametrize("first_id", [0, 1000])
def test_the_score_is_compared_where_every_pair_of_runs_has_the_same_examples(tmp_path: Path, first_id: int) -> None:
    groups = [
        dataclasses.replace(
            group, runs=[run._replace(predictions_path=path) for run, path in zip(group.runs, paths, strict=True)]
        )
        for group in (group_of("a", [0.5, 0.5]), group_of("b", [0.5, 0.5]))
        for paths in [[keep_predictions(tmp_path, run.id, 0.5, first_id * seed) for seed, run in enumerate(group.runs)]]
    ]
    found = compare_examples(*groups)
    assert (found is None) == (first_id > 0)


A_CLASS = {"id": "1", "prediction": "a", "gold": "b", "correct": False, "probabilities": {"a": 0.7, "b": 0.3}}


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ("{", "Expecting property name"),
        ("[1]", "line 2 is no prediction"),
        ({"prediction": "a"}, "line 2 is no prediction"),
        ({**A_CLASS, "id": ["1"]}, "line 2 is no prediction"),
        ({"prediction": 0.5, "gold": 1, "error": "large"}, "line 2 is no prediction"),
        ({"words": ["a"], "prediction": ["PER"], "gold": ["O"]}, "line 2 is no prediction"),
        ({"prediction": 0.5, "gold": 1.0}, "line 2 predicts a value, and those before it a class"),
    ],
)
def test_a_line_that_is_no_prediction_is_named(tmp_path: Path, second: Any, says: str) -> None:
    path = tmp_path / "predictions.jsonl"
    path.write_text(f"{json.dumps(A_CLASS)}\n{second if isinstance(second, str) else json.dumps(second)}\n")
    with pytest.raises(InputError, match=f"The predictions at {path} cannot be read: .*{says}"):
        read_predictions(str(path))
