"""Scores of each class, and which classes are taken for which.

Shapes: C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
