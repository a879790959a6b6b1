"""Scores of classification and regression, as GLUE defines them per task (Wang et al. 2018, section 3); scores of
each class, and of labels of which an example has any number.

Every score is a fraction; correlations lie between -1 and 1. A correlation that is not defined, because one side
never varies, counts as 0: a model that always says the same has learned nothing. Shapes: N examples, C classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bert_core.errors import DataError

_GLUE_SCORES: Mapping[str, tuple[str, ...]] = {
    "cola": ("matthews_correlation",),
    "sst2": ("accuracy",),
    "mrpc": ("accuracy", "f1"),
    "stsb": ("pearson", "spearman"),
    "qqp": ("accuracy", "f1"),
    "mnli": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
}


def glue_metrics(task: str, predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Score a GLUE task: predicted class numbers, or values for `stsb`, against the gold ones.

    `f1` is that of class 1. Raises: DataError.
    """
    if task not in _GLUE_SCORES:
        raise DataError(f"{task!r} is no GLUE task; one of: {', '.join(_GLUE_SCORES)}")
    scores = regression_metrics(predictions, labels) if task == "stsb" else binary_metrics(predictions, labels)
    return {name: scores[name] for name in _GLUE_SCORES[task]}


def glue_metric_names(task: str) -> tuple[str, ...]:
    return _GLUE_SCORES.get(task, ())


def binary_metrics(predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compute `classification_metrics`, and `f1` of class 1. Raises: DataError."""
    predicted, gold = _check_pair(predictions, labels)
    return {**classification_metrics(predicted, gold), "f1": _f1(predicted == 1, gold == 1)}


def classification_metrics(predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compute `accuracy`, `macro_f1` (the mean of F1 over the classes that occur) and `matthews_correlation`.

    Raises: DataError.
    """
    predicted, gold = _check_pair(predictions, labels)
    classes = np.union1d(predicted, gold)
    return {
        "accuracy": float(np.mean(predicted == gold)),
        "macro_f1": float(np.mean([_f1(predicted == c, gold == c) for c in classes])),
        "matthews_correlation": _matthews_correlation(predicted, gold, classes),
    }


def regression_metrics(predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compute `pearson` and `spearman` correlation. Raises: DataError."""
    predicted, gold = (values.astype(np.float64) for values in _check_pair(predictions, labels))
    return {"pearson": _correlation(predicted, gold), "spearman": _correlation(_ranks(predicted), _ranks(gold))}


def _check_pair(predictions: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    predicted, gold = np.asarray(predictions), np.asarray(labels)
    if predicted.ndim != 1 or gold.ndim != 1:
        raise DataError(
            f"predictions have shape {predicted.shape}, labels {gold.shape}: give one number per example, "
            "the class (the argmax of its logits) or the value"
        )
    if len(predicted) != len(gold):
        raise DataError(f"{len(predicted)} predictions for {len(gold)} labels; there must be one for each")
    if not len(gold):
        raise DataError("there is no example to score; give at least one")
    for name, values in (("predictions", predicted), ("labels", gold)):
        if values.dtype.kind not in "biuf":
            raise DataError(f"{name} must be numbers, not {values.dtype}")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            place = int(np.flatnonzero(~np.isfinite(values))[0])
            raise DataError(f"{name}[{place}] is {values[place]}; a diverged model cannot be scored")
    return predicted, gold


def _f1(predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> float:
    total = int(predicted.sum() + gold.sum())
    return 2.0 * int((predicted & gold).sum()) / total if total else 0.0


def _matthews_correlation(predicted: NDArray[Any], gold: NDArray[Any], classes: NDArray[Any]) -> float:
    """Correlation of the class indicators: Matthews (1975), for more than two classes Gorodkin (2004)."""
    p = predicted[:, None] == classes[None, :]  # (N, C)
    g = gold[:, None] == classes[None, :]  # (N, C)
    p_centered, g_centered = p - p.mean(axis=0), g - g.mean(axis=0)  # (N, C)
    scale = float(np.sqrt((p_centered**2).sum() * (g_centered**2).sum()))
    return _as_correlation(float((p_centered * g_centered).sum()), scale)


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    if np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return 0.0
    x_centered, y_centered = x - x.mean(), y - y.mean()
    scale = float(np.linalg.norm(x_centered) * np.linalg.norm(y_centered))
    return _as_correlation(float(x_centered @ y_centered), scale)


def _as_correlation(covariance: float, scale: float) -> float:
    return min(1.0, max(-1.0, covariance / scale)) if scale > 0.0 else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank values from 1; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[which], dtype=np.float64)


@dataclass(frozen=True)
class ClassScores:
    """Scores of one class; one whose denominator is 0 is 0."""

    precision: float
    recall: float
    f1: float
    support: int
    """Number of gold examples of the class."""


def confusion_matrix(predicted: Sequence[int], gold: Sequence[int], num_classes: int) -> NDArray[np.int64]:
    """Count the examples of each gold class (rows) by their predicted class (columns): (C, C)."""
    counts = np.zeros((num_classes, num_classes), np.int64)
    np.add.at(counts, (np.asarray(gold, np.int64), np.asarray(predicted, np.int64)), 1)
    return counts


def class_scores(confusion: NDArray[np.int64]) -> list[ClassScores]:
    """Scores of each class of a confusion matrix (C, C), in the order of the classes."""
    right, found, wanted = np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1)
    return [
        ClassScores(
            precision=float(hits / max(num_found, 1)),
            recall=float(hits / max(num_wanted, 1)),
            f1=float(2 * hits / max(num_found + num_wanted, 1)),
            support=int(num_wanted),
        )
        for hits, num_found, num_wanted in zip(right, found, wanted, strict=True)
    ]


def multi_label_metrics(predictions: ArrayLike, labels: ArrayLike, probabilities: ArrayLike) -> dict[str, float]:
    """Compute `micro_f1`, `macro_f1`, `subset_accuracy` and `label_ranking_average_precision`.

    They are: F1 over all decisions together; the mean of each label's F1, over the labels that occur; the share of
    examples whose labels are all right; how high an example's labels rank (Tsoumakas, Katakis and Vlahavas 2010).

    Args:
        predictions: (N, C) whether a label is predicted for an example.
        labels: (N, C) whether the example has the label.
        probabilities: (N, C) numbers that the labels are ranked by.

    Raises: DataError when they are not tables of one shape, or hold values that are not finite.
    """
    predicted, gold = np.asarray(predictions, dtype=bool), np.asarray(labels, dtype=bool)
    ranked_by = np.asarray(probabilities, dtype=np.float64)
    if not predicted.shape == gold.shape == ranked_by.shape or gold.ndim != 2 or not gold.size:
        raise DataError(
            f"predictions have shape {predicted.shape}, labels {gold.shape}, probabilities {ranked_by.shape}: "
            "give a row per example and a column per label"
        )
    if not np.isfinite(ranked_by).all():
        raise DataError("probabilities hold values that are not finite; a diverged model cannot be scored")
    right = (predicted & gold).sum(axis=0)  # (C,)
    predicted_or_gold = predicted.sum(axis=0) + gold.sum(axis=0)  # (C,)
    occurs = predicted_or_gold > 0
    return {
        "micro_f1": float(2 * right.sum() / max(1, predicted_or_gold.sum())),
        "macro_f1": float(np.mean(2 * right[occurs] / predicted_or_gold[occurs])) if occurs.any() else 0.0,
        "subset_accuracy": float(np.mean((predicted == gold).all(axis=1))),
        "label_ranking_average_precision": _ranking_precision(gold, ranked_by),
    }


def _ranking_precision(gold: NDArray[np.bool_], ranked_by: NDArray[np.float64]) -> float:
    """Compute label ranking average precision.

    For each label of an example it takes the share of the example's labels among those ranked as high or higher, then
    the mean over its labels, and over the examples. An example with all labels or none counts 1: no order is wrong.
    """
    num_gold = gold.sum(axis=1)  # (N,)
    totals = np.zeros(len(gold))
    for label in range(gold.shape[1]):
        as_high = ranked_by >= ranked_by[:, [label]]  # (N, C)
        totals += gold[:, label] * (as_high & gold).sum(axis=1) / as_high.sum(axis=1)
    means = np.divide(totals, num_gold, out=np.ones(len(gold)), where=num_gold > 0)
    return float(means.mean())
