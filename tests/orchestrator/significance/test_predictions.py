"""Kept predictions as scores. Alone: pytest tests/orchestrator/significance/test_predictions.py"""

import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bert_core.metrics import classification_metrics, multi_label_metrics, ner_f1
from orchestrator.significance.comparison import compare_over_examples
from orchestrator.significance.predictions import same_examples, scores_for

NUM_EXAMPLES = 60
TAGS = ("O", "B-PER", "I-PER", "B-LOC")


def drawn(seed: int) -> random.Random:
    return random.Random(seed)


def class_rows(seed: int, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a classifier; the gold labels are the same for any seed."""
    rows = []
    for number in range(NUM_EXAMPLES):
        gold, predicted = drawn(number).choice(labels), drawn(1000 * seed + number).choice(labels)
        answer = {"id": str(number), "prediction": predicted, "gold": gold, "correct": gold == predicted}
        rows.append({**answer, "probabilities": dict.fromkeys(labels, 0.5)})
    return rows


def score(metric: str, rows: Sequence[dict[str, Any]]) -> float:
    """The score of all examples, each drawn once."""
    found = scores_for(metric, rows, rows)
    assert found is not None
    first, second = (float(side(np.ones((1, len(rows))))[0]) for side in found)
    assert first == second
    return first


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
    sides = [[[label for label in labels if rng.random() < 0.5] for _ in range(2)] for _ in range(NUM_EXAMPLES)]
    rows = [{"id": str(n), "prediction": one, "gold": gold} for n, (one, gold) in enumerate(sides)]
    indicators = [[[label in row[side] for label in labels] for row in rows] for side in ("prediction", "gold")]
    expected = multi_label_metrics(*indicators, np.zeros((NUM_EXAMPLES, 3)))
    assert score("micro_f1", rows) == pytest.approx(expected["micro_f1"])


def graded_rows(seed: int, num_examples: int) -> list[dict[str, Any]]:
    """Rows of a regression on grades, with equal ones among them; the gold is the same for any seed."""
    gold = np.random.default_rng(0).integers(0, 6, num_examples)
    predictions = np.round(gold + np.random.default_rng(seed).normal(0, seed, num_examples), 1)
    return [{"id": str(n), "prediction": float(predictions[n]), "gold": float(gold[n])} for n in range(num_examples)]


@pytest.mark.heavy
def test_a_bootstrap_of_spearmans_correlation_is_scipys_and_quick() -> None:
    num_examples = 2000
    one, other = graded_rows(1, num_examples), graded_rows(2, num_examples)
    scores = scores_for("spearman", one, other)
    assert scores is not None
    began = time.process_time()
    found = compare_over_examples(num_examples, *scores)
    assert time.process_time() - began < 2
    values = np.asarray(
        [[*(row["prediction"] for row in both), both[0]["gold"]] for both in zip(one, other, strict=True)]
    )

    def difference(places: Any) -> float:
        first, second, gold = values[places].T
        return float(stats.spearmanr(first, gold).statistic - stats.spearmanr(second, gold).statistic)

    options: dict[str, Any] = {
        "method": "percentile",
        "n_resamples": 999,
        "vectorized": False,
        "rng": np.random.default_rng(0),
    }
    expected = stats.bootstrap((np.arange(num_examples),), difference, **options).confidence_interval
    assert found.difference == pytest.approx(difference(np.arange(num_examples)))
    assert (found.interval.low, found.interval.high) == pytest.approx((expected.low, expected.high), abs=0.003)


METRICS = ("f1", "micro_f1", "macro_f1", "matthews_correlation", "precision", "recall", "pearson", "spearman")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "changes", [{"gold": None}, {"gold": "unseen"}, {"prediction": "unseen"}, {"probabilities": {}}]
)
def test_rows_without_a_known_answer_are_not_counted(metric: str, changes: dict[str, Any]) -> None:
    rows = class_rows(1, ["0", "1"])
    assert scores_for(metric, rows, [*rows[1:], rows[0] | changes]) is None


def test_rows_are_put_side_by_side_by_their_example() -> None:
    first, second = class_rows(1, ["0", "1"]), class_rows(2, ["0", "1"])[::-1]
    pairs = same_examples(first, second)
    assert pairs is not None
    assert list(pairs) == [row["id"] for row in first]
    assert all(one["id"] == other["id"] == number for number, (one, other) in pairs.items())
    assert same_examples(first, second[1:]) is None
    other_gold = [{**row, "gold": "other"} for row in second]
    assert same_examples(first, other_gold) is None, "the same number of a row is no same example"
    assert same_examples([], []) is None
