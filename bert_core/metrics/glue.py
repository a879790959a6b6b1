"""Scores of classification and regression, as GLUE defines them per task (Wang et al. 2018, section 3).

Every score is a fraction; correlations lie between -1 and 1. A correlation that is not defined, because one side
never varies, counts as 0: a model that always says the same has learned nothing.
"""

from collections.abc import Mapping
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
    """Names of the scores of a GLUE task; none for another task."""
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
