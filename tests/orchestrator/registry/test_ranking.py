"""Order of groups by their scores. Alone: pytest tests/orchestrator/registry/test_ranking.py"""

import dataclasses
import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.registry import Registry
from orchestrator.registry.group_records import scored_trials
from orchestrator.registry.leaderboard import Order, in_order, noise_of, trial_groups
from orchestrator.registry.parameters import varying_paths
from orchestrator.registry.roll_up import numbers_of
from tests.orchestrator.registry.group_samples import group_of, new_sweep, seeds
from tests.orchestrator.registry.samples import trial_result


def test_the_newest_of_equal_runs_stands_for_the_group(registry: Registry) -> None:
    for number in range(3):
        seeds(registry, [0.9 if number else 0.8], first=number)
    (group,) = registry.groups_of(registry.run_ids())
    assert group.best is not None
    assert group.best.seed == 2
    tested = dataclasses.replace(group, runs=[run._replace(test=0.7) for run in group.runs])
    assert tested.tested is not None
    assert tested.tested.seed == 2


def test_groups_are_ranked_by_their_mean_or_by_another_number(registry: Registry) -> None:
    seeds(registry, [0.88, 0.885, 0.882, 0.879, 0.884], learning_rate=1e-5)
    seeds(registry, [0.99, 0.80], learning_rate=2e-5)
    seeds(registry, [0.92], learning_rate=3e-5)
    found = {by: registry.leaderboard("sst2", by=by) for by in get_args(Order)}
    assert {by: table.values("n") for by, table in found.items()} == {
        "mean": [1, 2, 5], "lower": [5, 2, 1], "median": [1, 2, 5], "best": [2, 1, 5]
    }  # fmt: skip
    assert registry.leaderboard("sst2").values("n") == [5, 2, 1]
    assert found["lower"].values("low") == sorted(found["lower"].values("low"), reverse=True)


def test_one_seed_and_seeds_that_score_the_same_have_the_noise_of_the_others(registry: Registry) -> None:
    seeds(registry, [0.684, 0.684, 0.684], learning_rate=1e-5)
    seeds(registry, [0.80, 0.86, 0.74], learning_rate=2e-5)
    seeds(registry, [0.92], learning_rate=3e-5)
    rows = registry.leaderboard().records
    assert [row["n"] for row in rows] == [1, 3, 3]
    widths = [row["mean"] - row["low"] for row in rows]
    assert widths == pytest.approx([widths[2] * math.sqrt(3), widths[2], widths[2]])
    assert widths[2] == pytest.approx(4.3027 * 0.06 / math.sqrt(3), rel=1e-4)
    noise = registry.seed_noise(registry.group(rows[0]["group"]))
    assert noise is not None
    assert noise.variance == pytest.approx(0.06**2)


def test_where_no_group_has_seeds_that_differ_there_is_no_interval(registry: Registry) -> None:
    seeds(registry, [0.684, 0.684, 0.684], learning_rate=1e-5)
    seeds(registry, [0.92], learning_rate=3e-5)
    rows = registry.leaderboard().records
    assert [row["rank"] for row in rows] == [1, 2]
    assert [(row["low"], row["high"], row["may_be_best"]) for row in rows] == [(None, None, None)] * 2


@pytest.mark.parametrize("metric", ["perplexity", "mlm_loss", "error_rate", "wer", "brier", "bits_per_character"])
def test_a_score_that_falls_ranks_the_smallest_first(registry: Registry, metric: str) -> None:
    for rate, values in ((1e-5, (50.0, 51.0, 49.0)), (2e-5, (5.0, 5.1, 5.2)), (3e-5, (math.inf, 5.0, 4.9))):
        sweep = new_sweep(registry)
        registry.trials.set_metric(sweep, "sst2", metric)
        registry.trials.record(
            sweep,
            [
                trial_result(f"{seed}", seed=seed, parameters={"learning_rate": rate}, metrics={metric: value})
                for seed, value in enumerate(values)
            ],
        )
    rows = registry.leaderboard().records
    assert [row["mean"] for row in rows] == pytest.approx([4.95, 5.1, 50.0])
    assert (rows[2]["best"], rows[2]["worst"]) == (49.0, 51.0)
    assert [row["may_be_best"] for row in rows] == [True, True, False]


def test_groups_that_the_best_is_not_significantly_better_than_may_be_the_best(registry: Registry) -> None:
    seeds(registry, [0.90, 0.91, 0.92], learning_rate=1e-5)
    seeds(registry, [0.89, 0.91, 0.93], learning_rate=2e-5)
    seeds(registry, [0.50, 0.51, 0.52], learning_rate=3e-5)
    seeds(registry, [0.60], learning_rate=4e-5)
    seeds(registry, [math.nan], learning_rate=5e-5)
    assert registry.leaderboard().values("may_be_best") == [True, True, False, False, None]


@given(
    st.lists(
        st.lists(st.one_of(st.floats(0, 1), st.just(math.nan), st.just(math.inf)), min_size=1, max_size=6),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(get_args(Order)),
    st.sampled_from(["accuracy", "perplexity"]),
)
def test_no_score_that_is_no_number_leads(scores: list[list[float]], by: Order, metric: str) -> None:
    numbers = numbers_of(group_of(f"{number:016}", values, metric) for number, values in enumerate(scores))
    places = in_order(numbers, metric, by, noise_of(numbers)).tolist()
    assert sorted(places) == list(range(len(scores)))
    has_score = [bool(numbers["n"][place]) for place in places]
    assert has_score == sorted(has_score, reverse=True)
    for limit in range(len(scores)):
        assert in_order(numbers, metric, by, noise_of(numbers), limit).tolist() == places[:limit]


class Counted(str):
    """Text that counts how often any was compared with another."""

    num_comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.num_comparisons += 1
        return str.__eq__(self, str(other))


def test_the_work_of_a_leaderboard_grows_with_its_groups_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for num_groups in (500, 1000):
        monkeypatch.setattr(Counted, "num_comparisons", 0)
        recipes = [
            {f"recipe.p{axis}": Counted(f"{group % (axis + 2)}") for axis in range(20)} for group in range(num_groups)
        ]
        varying_paths(recipes)
        counts.append(Counted.num_comparisons)
    assert counts[1] <= 2.5 * counts[0]


def test_intervals_of_scores_between_0_and_1_end_there(registry: Registry) -> None:
    seeds(registry, [0.999, 1.0, 0.96])
    seeds(registry, [0.001, 0.0, 0.04], learning_rate=3e-5)
    good, poor = registry.leaderboard("sst2").records
    assert good["high"] == 1.0
    assert good["low"] == pytest.approx(0.986333 - 0.0363, abs=1e-3)
    assert poor["low"] == 0.0


ROWS = [
    {"number": number, "state": state, "metrics.f1": score, "metrics.mlm_loss": score}
    for number, (state, score) in enumerate(
        [
            ("COMPLETED", 0.5),
            ("COMPLETED", 0.9),
            ("FAILED", 1.0),
            ("COMPLETED", float("nan")),
            ("COMPLETED", None),
            ("COMPLETED", 0.9),
            ("COMPLETED", float("inf")),
        ]
    )
]


@pytest.mark.parametrize(("metric", "order"), [("f1", [1, 5, 0]), ("mlm_loss", [0, 1, 5]), ("accuracy", [])])
def test_the_best_stands_first_in_the_direction_of_its_score(metric: str, order: list[int]) -> None:
    assert [row["number"] for row in scored_trials(ROWS, metric)] == order


def trials(metric: str, scores: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Rows of completed trials by the key of their group, a seed for each score."""
    about = {"state": "COMPLETED", "task": "own", "finished_at": None, "parent": "s"}
    return [
        {**about, "id": f"{key}{seed}", "number": seed, "seed": seed, "group": key, f"metrics.{metric}": score}
        for key, of_group in scores.items()
        for seed, score in enumerate(of_group)
    ]


@pytest.mark.parametrize(("metric", "order"), [("f1", ["b", "a", "c"]), ("mlm_loss", ["c", "a", "b"])])
def test_groups_stand_as_on_the_leaderboard_and_in_each_the_best_trial_first(metric: str, order: list[str]) -> None:
    scores = {"a": [0.5, 0.9], "b": [0.8, 0.7], "c": [0.4, float("inf")], "d": [float("nan")]}
    groups = trial_groups(trials(metric, scores), metric)
    assert [group.key for group in groups] == order
    assert [[run.score for run in group.runs] for group in groups if group.key == "a"] == [
        [0.9, 0.5] if metric == "f1" else [0.5, 0.9]
    ]
