"""Scores by class, degrees of mistakes, by prediction rows. Alone: pytest tests/orchestrator/tasks/test_mistakes.py"""

from typing import Any

import pytest

from orchestrator.tasks.mistakes import breakdown, wrongness


def test_classes_have_scores_and_confusions() -> None:
    rows = [{"prediction": found, "gold": gold} for found, gold in zip("abb", "aab", strict=True)]
    tables = breakdown(rows)
    assert tables["classes"][0] == {"label": "a", "precision": 1.0, "recall": 0.5, "f1": 2 / 3, "support": 2}
    assert tables["confusions"] == [{"gold": "a", "a": 1, "b": 1}, {"gold": "b", "a": 0, "b": 1}]
    assert breakdown(rows, max_confusions=1).keys() == {"classes"}
    in_order = [{**row, "probabilities": {"b": 0.5, "c": 0.0, "a": 0.5}} for row in rows]
    assert [row["label"] for row in breakdown(in_order)["classes"]] == ["b", "c", "a"]


def test_labels_of_which_several_hold_have_scores_of_their_own() -> None:
    row = {"prediction": ["a"], "probabilities": {"a": 0.9, "b": 0.1}}
    found = breakdown([{**row, "gold": ["a", "b"]}, {**row, "gold": []}])["classes"]
    assert [(row["label"], row["precision"], row["recall"], row["support"]) for row in found] == [
        ("a", 0.5, 1.0, 1),
        ("b", 0.0, 0.0, 1),
    ]


def test_entities_and_other_tags_have_scores() -> None:
    tags = ["B-PER", "I-PER", "O"]
    (row,) = breakdown([{"words": ["Ann", "Lee", "runs"], "prediction": tags, "gold": tags}])["entities"]
    assert row == {"entity": "PER", "precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1}
    found = breakdown([{"words": ["a", "b", "c"], "prediction": ["N", "V", "N"], "gold": ["N", "V", "V"]}])["tags"]
    assert [(row["tag"], row["precision"], row["recall"], row["support"]) for row in found] == [
        ("N", 0.5, 1.0, 1),
        ("V", 1.0, 0.5, 2),
    ]


def test_questions_without_an_answer_are_counted_apart() -> None:
    rows: list[dict[str, Any]] = [
        {"prediction": "Ann", "gold": ["Ann"], "exact_match": 1.0, "f1": 1.0},
        {"prediction": "runs", "gold": [], "exact_match": 0.0, "f1": 0.0},
    ]
    assert [(row["questions"], row["number"], row["answered"], row["f1"]) for row in breakdown(rows)["questions"]] == [
        ("with an answer", 1, 1, 1.0),
        ("without an answer", 1, 1, 0.0),
    ]


SURE = {"a": 0.9, "b": 0.7, "c": 0.2}
DEGREES: list[tuple[dict[str, Any], float]] = [
    ({"prediction": 0.5, "gold": 2.0, "error": -1.5}, 1.5),
    ({"words": ["Ann", "Lee"], "prediction": ["O", "B-PER"], "gold": ["B-PER", "I-PER"], "correct": False}, 2.0),
    ({"prediction": "x", "gold": ["x y"], "exact_match": 0.0, "f1": 0.25}, 0.75),
    ({"prediction": "a", "gold": "a", "correct": True, "probabilities": SURE}, 0.0),
    ({"prediction": "b", "gold": "a", "correct": False, "probabilities": SURE}, 0.7),
    ({"prediction": "b", "gold": "a", "correct": False}, 1.0),
    ({"prediction": ["b"], "gold": ["b", "a"], "correct": False, "probabilities": SURE}, 0.1),
    ({"prediction": ["a", "b"], "gold": ["a", "b", "c"], "correct": False, "probabilities": SURE}, 0.8),
    ({"prediction": 1, "gold": 0, "correct": False, "probabilities": [0.25, 0.75]}, 0.75),
    ({"prediction": ["d1"], "gold": {"d2": 1.0}, "found": False}, 0.0),
]


@pytest.mark.parametrize(("row", "degree"), DEGREES)
def test_a_mistake_is_as_grave_as_it_is_far_off_or_sure(row: dict[str, Any], degree: float) -> None:
    assert wrongness(row) == pytest.approx(degree)
    assert breakdown([]) == {}
