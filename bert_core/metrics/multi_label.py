"""Scores of multi-label classification: every example has any number of the labels. Each score is a fraction."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bert_core.errors import DataError


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
