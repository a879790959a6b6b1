"""Trials in the order of their scores. Alone: pytest tests/orchestrator/registry/groups/test_scored_trials.py"""

from typing import Any

import pytest

from orchestrator.registry.groups.scored_trials import scored_groups, scored_trials

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


@pytest.mark.parametrize(("metric", "order"), [("f1", [1, 5, 0]), ("mlm_loss", [0, 1, 5])])
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


@pytest.mark.parametrize(("metric", "order"), [("f1", ["b", "a", "c"]), ("mlm_loss", ["b", "a", "c"])])
def test_groups_stand_as_on_the_leaderboard_and_in_each_the_best_trial_first(metric: str, order: list[str]) -> None:
    scores = {"a": [0.5, 0.9], "b": [0.8, 0.7], "c": [0.4, float("inf")], "d": [float("nan")]}
    groups = scored_groups(trials(metric, scores), metric)
    assert [group[0]["group"] for group in groups] == order
    assert all(len({row["group"] for row in group}) == 1 for group in groups)
    assert [[row[f"metrics.{metric}"] for row in group] for group in groups if group[0]["group"] == "a"] == [
        [0.9, 0.5] if metric == "f1" else [0.5, 0.9]
    ]


def test_one_lucky_seed_stands_after_several_good_ones() -> None:
    groups = scored_groups(trials("f1", {"lucky": [0.92], "good": [0.88, 0.89, 0.87, 0.88, 0.89]}), "f1")
    assert [group[0]["group"] for group in groups] == ["good", "lucky"]


def test_a_trial_without_the_score_is_left_out() -> None:
    assert scored_trials(ROWS, "accuracy") == []
