"""Scores of classes and rankings, and calibration, against scikit-learn, SciPy and their definitions.

Alone: pytest tests/bert_core/metrics/test_classification.py
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn import metrics as sk
from sklearn.metrics import f1_score, precision_recall_curve

from bert_core.calibration import fit_temperature, tune_threshold
from bert_core.errors import DataError
from bert_core.metrics import (
    binary_metrics,
    class_scores,
    classification_metrics,
    confusion_matrix,
    glue_metrics,
    multi_label_metrics,
    regression_metrics,
    retrieval_metrics,
    retrieval_metrics_by_query,
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


SCORES = {"cola": ["matthews_correlation"], "stsb": ["pearson", "spearman"]}
SCORES |= {"mrpc": ["accuracy", "f1"], "qqp": ["accuracy", "f1"]}
SCORES |= {task: ["accuracy"] for task in ("sst2", "mnli", "qnli", "rte", "wnli")}


@pytest.mark.parametrize("task", SCORES)
def test_each_task_has_the_scores_of_glue_and_they_are_1_for_the_gold(task: str) -> None:
    scores = glue_metrics(task, [0, 1, 1, 0, 1], [0, 1, 1, 0, 1])
    assert scores == dict.fromkeys(SCORES[task], pytest.approx(1.0))


@pytest.mark.parametrize(
    ("task", "predictions", "labels"),
    [
        ("sst3", [0], [0]),
        ("sst2", [0, 1], [0]),
        ("sst2", [], []),
        ("sst2", [[0.1, 0.9]], [1]),
        ("sst2", ["positive"], ["positive"]),
        ("stsb", [float("nan"), 1.0], [1.0, 2.0]),
    ],
)
def test_what_cannot_be_scored_is_refused(task: str, predictions: list, labels: list) -> None:
    with pytest.raises(DataError):
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
            "micro_f1": sk.f1_score(gold, predicted, average="micro", **few),
            "macro_f1": sk.f1_score(gold, predicted, average="macro", **few),
            "subset_accuracy": sk.accuracy_score(gold, predicted),
            "label_ranking_average_precision": sk.label_ranking_average_precision_score(gold, probabilities),
        }
    )


@pytest.mark.parametrize(("shape", "value"), [((2, 3), 0.5), ((2, 2), np.nan)])
def test_tables_that_do_not_fit_are_refused(shape: tuple[int, int], value: float) -> None:
    gold = np.ones((2, 2), dtype=bool)
    with pytest.raises(DataError):
        multi_label_metrics(gold, gold, np.full(shape, value))


LABELS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


@given(LABELS)
def test_scores_of_classes_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    predicted, gold = zip(*pairs, strict=True)
    counts = confusion_matrix(predicted, gold, 4)
    assert np.array_equal(counts, sk.confusion_matrix(gold, predicted, labels=range(4)))
    reference = sk.precision_recall_fscore_support(gold, predicted, labels=range(4), zero_division=0)
    ours = [(scores.precision, scores.recall, scores.f1, scores.support) for scores in class_scores(counts)]
    assert np.allclose(ours, np.transpose(reference))


JUDGMENTS = {"q": {"a": 3.0, "b": 1.0, "c": 2.0, "d": 0.0, "e": -1.0}}
RANKING = ["d", "c", "x", "a", "e"]


@pytest.mark.parametrize(
    ("k", "recall", "mrr", "ndcg"),
    [
        (1, 0.0, 0.0, 0.0),
        (2, 1 / 3, 0.5, (2 / np.log2(3)) / (3 + 2 / np.log2(3))),
        (4, 2 / 3, 0.5, (2 / np.log2(3) + 3 / np.log2(5)) / (3 + 2 / np.log2(3) + 1 / 2)),
        (100, 2 / 3, 0.5, (2 / np.log2(3) + 3 / np.log2(5)) / (3 + 2 / np.log2(3) + 1 / 2)),
    ],
)
def test_a_hand_made_ranking(k: int, recall: float, mrr: float, ndcg: float) -> None:
    scores = retrieval_metrics_by_query({"q": RANKING}, JUDGMENTS, [k])["q"]
    assert scores == pytest.approx({f"recall_at_{k}": recall, f"mrr_at_{k}": mrr, f"ndcg_at_{k}": ndcg})


@given(gains=st.lists(st.integers(0, 4), min_size=2, max_size=20), k=st.integers(1, 25), data=st.data())
def test_ndcg_agrees_with_scikit_learn(gains: list[int], k: int, data: st.DataObject) -> None:
    gains[0] += not any(gains)
    order = data.draw(st.permutations(range(len(gains))))
    scores = np.empty(len(gains))
    scores[order] = np.arange(len(gains), 0, -1)
    ours = retrieval_metrics({"q": [str(i) for i in order]}, {"q": {str(i): g for i, g in enumerate(gains)}}, [k])
    assert ours[f"ndcg_at_{k}"] == pytest.approx(sk.ndcg_score([gains], [scores], k=k))


def test_the_mean_is_over_queries_with_a_relevant_document_found_or_not() -> None:
    judgments = {**JUDGMENTS, "lost": {"a": 1.0}, "unanswerable": {"a": 0.0}}
    rankings = {"q": ["a", "c", "b"], "unanswerable": ["a"], "unjudged": ["a"]}
    assert retrieval_metrics_by_query(rankings, judgments).keys() == {"q", "lost"}
    assert retrieval_metrics(rankings, judgments)["recall_at_10"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("ranking", "judgments", "cutoffs"),
    [(["a", "b", "a"], JUDGMENTS, [10]), (["a"], {"q": {"a": 0.0}}, [10]), (["a"], JUDGMENTS, [0])],
)
def test_rankings_that_cannot_be_scored_are_refused(ranking: list, judgments: dict, cutoffs: list) -> None:
    with pytest.raises(DataError):
        retrieval_metrics({"q": ranking}, judgments, cutoffs)


def likelihood_loss(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    return float(-log_softmax(logits.astype(np.float64) / temperature, axis=1)[np.arange(len(labels)), labels].mean())


@pytest.mark.parametrize("scale", [0.3, 1.0, 8.0])
def test_temperature_is_where_scipy_finds_the_least_loss(scale: float) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 3)) * 2
    labels = np.array([rng.choice(3, p=np.exp(row) / np.exp(row).sum()) for row in logits])
    logits = (scale * logits).astype(np.float32)
    found = fit_temperature(logits, labels)
    best = minimize_scalar(lambda log: likelihood_loss(logits, labels, np.exp(log)), bounds=(-4, 4), method="bounded")
    assert found == pytest.approx(np.exp(best.x), rel=1e-4)
    assert found == pytest.approx(scale, rel=0.2), "labels drawn from the softmax itself need none"


def test_temperature_stays_within_bounds_where_all_labels_are_right_or_wrong() -> None:
    logits = np.array([[3.0, -1.0], [-2.0, 5.0]])
    assert fit_temperature(logits, np.array([0, 1])) == pytest.approx(0.01)
    assert fit_temperature(logits, np.array([1, 0])) == pytest.approx(100.0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.5000001, 0.9, 1.0]), st.booleans()), min_size=1))
def test_threshold_has_the_best_f1_of_scikit_learns_curve(rows: list[tuple[float, bool]]) -> None:
    probabilities, has_label = (np.array(column) for column in zip(*rows, strict=True))
    found = tune_threshold(probabilities, has_label)
    assert 0.0 <= found < 1.0
    if not has_label[probabilities > 0].any():
        return
    precision, recall, thresholds = precision_recall_curve(has_label, probabilities)
    can_be = thresholds > 0  # a label of probability 0 is never predicted
    p, r = precision[:-1][can_be], recall[:-1][can_be]
    best = (2 * p * r / np.maximum(p + r, 1e-12)).max()
    assert f1_score(has_label, probabilities > found) == pytest.approx(best)


def test_a_threshold_lies_midway_and_at_one_half_where_nobody_has_the_label() -> None:
    assert tune_threshold(np.array([0.2, 0.9]), np.array([False, False])) == 0.5
    assert tune_threshold(np.array([0.8, 0.4]), np.array([True, False])) == pytest.approx(0.6)
    near = np.nextafter(0.5, 1.0)
    threshold = tune_threshold(np.array([near, 0.5]), np.array([True, False]))
    assert 0.5 <= threshold < near
