"""Kept predictions as counts whose sums make the scores that the metrics themselves give.

pytest tests/orchestrator/registry/groups/test_kept_predictions.py
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core.metrics import binary_metrics, classification_metrics, multi_label_metrics, ner_f1, regression_metrics
from orchestrator.errors import InputError
from orchestrator.registry.groups.kept_predictions import count_for, right_answers, same_examples
from orchestrator.registry.groups.prediction_files import read_predictions

NUM_EXAMPLES = 60
TAGS = ("O", "B-PER", "I-PER", "B-LOC")


def drawn(seed: int) -> random.Random:
    return random.Random(seed)


def class_rows(seed: int, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a classifier; the gold labels are the same for any seed."""
    rows = []
    for number in range(NUM_EXAMPLES):
        gold, predicted = drawn(number).choice(labels), drawn(1000 * seed + number).choice(labels)
        probabilities = dict.fromkeys(labels, 0.5)
        correct = gold == predicted
        rows.append(
            {
                "id": str(number),
                "prediction": predicted,
                "gold": gold,
                "correct": correct,
                "probabilities": probabilities,
            }
        )
    return rows


def score(metric: str, rows: Sequence[dict[str, Any]]) -> float:
    """The score by sums of counts."""
    counted = count_for(metric, rows, rows)
    assert counted is not None
    first, second, score_of = counted
    assert np.array_equal(first, second)
    return float(score_of(first.sum(axis=0, keepdims=True))[0])


@pytest.mark.parametrize("metric", ["accuracy", "f1", "macro_f1", "matthews_correlation"])
def test_scores_of_two_classes_are_the_metrics(metric: str) -> None:
    rows = class_rows(1, ["0", "1"])
    expected = binary_metrics([int(row["prediction"]) for row in rows], [int(row["gold"]) for row in rows])
    assert score(metric, rows) == pytest.approx(expected[metric])


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "matthews_correlation"])
def test_scores_of_several_classes_are_the_metrics(metric: str) -> None:
    labels = ["a", "b", "c", "never"]
    rows = class_rows(2, labels[:3])
    for row in rows:
        row["probabilities"] = dict.fromkeys(labels, 0.25)
    numbers = [[labels.index(row[side]) for row in rows] for side in ("prediction", "gold")]
    assert score(metric, rows) == pytest.approx(classification_metrics(*numbers)[metric])


@pytest.mark.parametrize("metric", ["f1", "precision", "recall"])
def test_scores_of_entities_are_the_metrics(metric: str) -> None:
    rng = drawn(3)
    rows = [
        {"id": str(n), "words": ["w"] * 6, "prediction": rng.choices(TAGS, k=6), "gold": rng.choices(TAGS, k=6)}
        for n in range(NUM_EXAMPLES)
    ]
    expected = ner_f1([row["prediction"] for row in rows], [row["gold"] for row in rows])
    assert score(metric, rows) == pytest.approx(expected[metric])


def test_scores_of_several_labels_are_the_metrics() -> None:
    rng, labels = drawn(4), ["x", "y", "z"]
    rows = [
        {
            "id": str(n),
            "prediction": [label for label in labels if rng.random() < 0.5],
            "gold": [label for label in labels if rng.random() < 0.5],
        }
        for n in range(NUM_EXAMPLES)
    ]
    indicators = [[[label in row[side] for label in labels] for row in rows] for side in ("prediction", "gold")]
    expected = multi_label_metrics(*indicators, np.zeros((NUM_EXAMPLES, 3)))
    assert score("micro_f1", rows) == pytest.approx(expected["micro_f1"])


def test_pearsons_correlation_is_the_metric() -> None:
    rng = drawn(5)
    rows = [{"id": str(n), "prediction": rng.random(), "gold": rng.random()} for n in range(NUM_EXAMPLES)]
    expected = regression_metrics([row["prediction"] for row in rows], [row["gold"] for row in rows])
    assert score("pearson", rows) == pytest.approx(expected["pearson"])
    assert count_for("spearman", rows, rows) is None, "ranks are not sums"


def test_scores_of_answers_are_means_of_each_question() -> None:
    rng = drawn(6)
    rows = [{"id": str(n), "prediction": "", "gold": [], "f1": rng.random(), "exact_match": 1.0} for n in range(9)]
    assert score("f1", rows) == pytest.approx(float(np.mean([row["f1"] for row in rows])))
    assert score("exact_match", rows) == 1.0
    assert right_answers(rows) == [True] * 9


METRICS = ("f1", "micro_f1", "macro_f1", "matthews_correlation", "precision", "recall", "pearson")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "changes", [{"gold": None}, {"gold": "unseen"}, {"prediction": "unseen"}, {"probabilities": {}}]
)
def test_rows_without_a_known_answer_are_not_counted(metric: str, changes: dict[str, Any]) -> None:
    rows = class_rows(1, ["0", "1"])
    assert count_for(metric, rows, [*rows[1:], rows[0] | changes]) is None


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("missing", ["gold", "prediction"])
@pytest.mark.parametrize("prediction", ["0", ["a"], 0.5])
def test_rows_without_a_field_are_not_counted(metric: str, missing: str, prediction: Any) -> None:
    row = {"id": "1", "prediction": prediction, "gold": prediction, "probabilities": {"0": 0.5, "1": 0.5}}
    rows = [{name: value for name, value in row.items() if name != missing}]
    assert count_for(metric, rows, rows) is None


def test_rows_are_put_side_by_side_by_their_example() -> None:
    first, second = class_rows(1, ["0", "1"]), class_rows(2, ["0", "1"])[::-1]
    pairs = same_examples(first, second)
    assert pairs is not None
    assert all(one["id"] == other["id"] and one["gold"] == other["gold"] for one, other in pairs)
    assert same_examples(first, second[1:]) is None
    other_gold = [{**row, "gold": "other"} for row in second]
    assert same_examples(first, other_gold) is None, "the same number of a row is no same example"
    assert same_examples([], []) is None


def test_rows_without_ids_are_no_same_examples() -> None:
    rows = [{key: value for key, value in row.items() if key != "id"} for row in class_rows(1, ["0", "1"])]
    assert same_examples(rows, rows) is None
    assert same_examples(rows[:1], rows[:1]) is None


A_CLASS = {"id": "1", "prediction": "a", "gold": "b", "correct": False, "probabilities": {"a": 0.7, "b": 0.3}}


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ("{", "Expecting property name"),
        ("[1]", "line 2 is no prediction"),
        ({"prediction": "a"}, "line 2 is no prediction"),
        ({**A_CLASS, "id": ["1"]}, "line 2 is no prediction"),
        ({**A_CLASS, "probabilities": {"a": "much"}}, "line 2 is no prediction"),
        ({"prediction": [["a"]], "gold": []}, "line 2 is no prediction"),
        ({"prediction": 0.5, "gold": 1, "error": "large"}, "line 2 is no prediction"),
        ({"words": ["a"], "prediction": ["PER"], "gold": ["O"]}, "line 2 is no prediction"),
        ({"prediction": "a", "gold": ["a"], "exact_match": 1.0}, "line 2 is no prediction"),
        ({"prediction": 0.5, "gold": 1.0}, "line 2 predicts a value, and those before it a class"),
    ],
)
def test_a_line_that_is_no_prediction_is_named(tmp_path: Path, second: Any, says: str) -> None:
    path = tmp_path / "predictions.jsonl"
    path.write_text(f"{json.dumps(A_CLASS)}\n{second if isinstance(second, str) else json.dumps(second)}\n")
    with pytest.raises(InputError, match=f"The predictions at {path} cannot be read: .*{says}"):
        read_predictions(str(path))
