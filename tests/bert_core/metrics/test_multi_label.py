"""Multi-label scores against scikit-learn, and where nothing is said or meant.

Alone: pytest tests/bert_core/metrics/test_multi_label.py
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, label_ranking_average_precision_score

from bert_core.errors import DataError
from bert_core.metrics import multi_label_metrics


@given(num_examples=st.integers(1, 12), num_labels=st.integers(2, 6), seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_scores_are_those_of_scikit_learn(num_examples: int, num_labels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gold = rng.random((num_examples, num_labels)) < rng.random()
    probabilities = rng.integers(0, 5, size=gold.shape) / 4  # with ties
    predicted = probabilities > 0.5
    occurs = np.flatnonzero((gold | predicted).any(axis=0))
    found = multi_label_metrics(predicted, gold, probabilities)
    few = {"labels": occurs, "zero_division": 0} if len(occurs) else {"zero_division": 0}
    assert found == pytest.approx(
        {
            "micro_f1": f1_score(gold, predicted, average="micro", **few),
            "macro_f1": f1_score(gold, predicted, average="macro", **few),
            "subset_accuracy": accuracy_score(gold, predicted),
            "label_ranking_average_precision": label_ranking_average_precision_score(gold, probabilities),
        }
    )


def test_a_label_that_nobody_has_or_says_does_not_count() -> None:
    gold = np.array([[True, False], [True, False]])
    assert multi_label_metrics(gold, gold, gold)["macro_f1"] == 1.0


@pytest.mark.parametrize(
    ("shape", "value", "message"),
    [
        ((2, 3), 0.5, r"labels \(2, 2\), probabilities \(2, 3\): give a row per example"),
        ((2, 2), np.nan, "not finite"),
    ],
)
def test_tables_that_do_not_fit_are_refused(shape: tuple[int, int], value: float, message: str) -> None:
    gold = np.ones((2, 2), dtype=bool)
    with pytest.raises(DataError, match=message):
        multi_label_metrics(gold, gold, np.full(shape, value))
