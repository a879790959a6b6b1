"""Trials in the order of their scores. Alone: pytest tests/orchestrator/registry/groups/test_scored_trials.py"""

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


@pytest.mark.parametrize(("metric", "order"), [("f1", ["b", "a", "c"]), ("mlm_loss", ["c", "a", "b"])])
def test_the_group_with_the_best_mean_stands_first_and_in_it_the_best_trial(metric: str, order: list[str]) -> None:
    scores = {"a": [0.5, 0.9], "b": [0.8, 0.7], "c": [0.4, float("inf")], "d": [float("nan")]}
    rows = [
        {"number": number, "state": "COMPLETED", "group": group, f"metrics.{metric}": score}
        for group, of_group in scores.items()
        for number, score in enumerate(of_group)
    ]
    groups = scored_groups(rows, metric)
    assert [group[0]["group"] for group in groups] == order
    assert all(len({row["group"] for row in group}) == 1 for group in groups)
    assert [[row[f"metrics.{metric}"] for row in group] for group in groups if group[0]["group"] == "a"] == [
        [0.9, 0.5] if metric == "f1" else [0.5, 0.9]
    ]


def test_a_trial_without_the_score_is_left_out() -> None:
    assert scored_trials(ROWS, "accuracy") == []
