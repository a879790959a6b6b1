"""Scores of classes against scikit-learn, SciPy and their definitions.

Alone: pytest tests/bert_core/metrics/test_classification.py
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    label_ranking_average_precision_score,
    precision_recall_fscore_support,
)
from sklearn.metrics import confusion_matrix as reference_confusions

from bert_core.errors import DataError
from bert_core.metrics import (
    binary_metrics,
    class_scores,
    classification_metrics,
    confusion_matrix,
    glue_metrics,
    multi_label_metrics,
    regression_metrics,
)

CLASSES = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 3), min_size=n, max_size=n), st.lists(st.integers(0, 3), min_size=n, max_size=n)
    )
)
VALUES = st.integers(3, 30).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(-9, 9), min_size=n, max_size=n), st.lists(st.integers(-9, 9), min_size=n, max_size=n)
    )
)


@settings(deadline=None)
@given(CLASSES)
@pytest.mark.heavy
def test_classification_agrees_with_scikit_learn(pair: tuple[list[int], list[int]]) -> None:
    predicted, gold = pair
    scores = classification_metrics(predicted, gold)
    assert scores["accuracy"] == pytest.approx(sk.accuracy_score(gold, predicted))
    assert scores["macro_f1"] == pytest.approx(sk.f1_score(gold, predicted, average="macro", zero_division=0))
    assert scores["matthews_correlation"] == pytest.approx(_multiclass_matthews(predicted, gold), abs=1e-12)


def _multiclass_matthews(predicted: list[int], gold: list[int]) -> float:
    """Gorodkin (2004) from the confusion matrix; scikit-learn's own warns where there is but one class."""
    table = np.zeros((4, 4))
    np.add.at(table, (gold, predicted), 1)
    said, true, n = table.sum(0), table.sum(1), table.sum()
    scale = np.sqrt(n**2 - (said**2).sum()) * np.sqrt(n**2 - (true**2).sum())
    return float((table.trace() * n - said @ true) / scale) if scale else 0.0


@settings(deadline=None)
@given(CLASSES)
def test_f1_is_that_of_class_1(pair: tuple[list[int], list[int]]) -> None:
    predicted, gold = (np.array(side) == 1 for side in pair)
    expected = sk.f1_score(gold, predicted, zero_division=0)
    assert binary_metrics(predicted.astype(int), gold.astype(int))["f1"] == pytest.approx(expected)


@settings(deadline=None)
@given(VALUES)
def test_correlations_agree_with_scipy(pair: tuple[list[int], list[int]]) -> None:
    predicted, gold = pair
    scores = regression_metrics(predicted, gold)
    if len(set(predicted)) == 1 or len(set(gold)) == 1:
        assert scores == {"pearson": 0.0, "spearman": 0.0}
    else:
        assert scores["pearson"] == pytest.approx(stats.pearsonr(predicted, gold).statistic, abs=1e-9)
        assert scores["spearman"] == pytest.approx(stats.spearmanr(predicted, gold).statistic, abs=1e-9)


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("cola", {"matthews_correlation"}),
        ("sst2", {"accuracy"}),
        ("mrpc", {"accuracy", "f1"}),
        ("stsb", {"pearson", "spearman"}),
        ("qqp", {"accuracy", "f1"}),
        ("mnli", {"accuracy"}),
        ("qnli", {"accuracy"}),
        ("rte", {"accuracy"}),
        ("wnli", {"accuracy"}),
    ],
)
def test_each_task_has_the_scores_of_glue_and_they_are_1_for_the_gold(task: str, names: set[str]) -> None:
    scores = glue_metrics(task, [0, 1, 1, 0, 1], [0, 1, 1, 0, 1])
    assert scores == dict.fromkeys(names, pytest.approx(1.0))


@pytest.mark.parametrize(
    ("task", "predictions", "labels", "message"),
    [
        ("sst3", [0], [0], "'sst3' is no GLUE task"),
        ("sst2", [0, 1], [0], "2 predictions for 1 labels"),
        ("sst2", [], [], "no example"),
        ("sst2", [[0.1, 0.9]], [1], "argmax"),
        ("sst2", ["positive"], ["positive"], "must be numbers"),
        ("stsb", [float("nan"), 1.0], [1.0, 2.0], r"predictions\[0\] is nan"),
    ],
)
def test_what_cannot_be_scored_is_named(task: str, predictions: list, labels: list, message: str) -> None:
    with pytest.raises(DataError, match=message):
        glue_metrics(task, predictions, labels)


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


LABELS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


@given(LABELS)
def test_scores_of_classes_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    predicted, gold = zip(*pairs, strict=True)
    counts = confusion_matrix(predicted, gold, 4)
    assert np.array_equal(counts, reference_confusions(gold, predicted, labels=range(4)))
    reference = precision_recall_fscore_support(gold, predicted, labels=range(4), zero_division=0)
    ours = [(scores.precision, scores.recall, scores.f1, scores.support) for scores in class_scores(counts)]
    assert np.allclose(ours, np.transpose(reference))
