"""Calibration on labeled examples: a temperature for probabilities, a threshold for a label. No torch.

Shapes: N examples, C classes.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAX_TEMPERATURE = 100.0
_NUM_HALVINGS = 40
"""Halvings of the range of temperatures, which leave twelve digits."""


def fit_temperature(logits: NDArray[Any], labels: NDArray[Any]) -> float:
    """Find what to divide logits by for the labels to be likeliest: (N, C), (N,) → 0.01 to 100.

    Guo et al. 2017, section 4.2. The log-likelihood is concave in the inverse of the temperature: one slope is 0.
    """
    logits = np.asarray(logits, np.float64)
    margins = logits - np.take_along_axis(logits, labels[:, None], axis=1)  # (N, C)
    low, high = -math.log(_MAX_TEMPERATURE), math.log(_MAX_TEMPERATURE)  # of the inverse's logarithm
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        scaled = math.exp(middle) * margins
        weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        loss_slope = ((weights * margins).sum(axis=1) / weights.sum(axis=1)).mean()
        low, high = (middle, high) if loss_slope < 0 else (low, middle)
    return math.exp(-(low + high) / 2)


def tune_threshold(probabilities: NDArray[Any], has_label: NDArray[np.bool_]) -> float:
    """Find the probability above which a label is predicted with the best F1: (N,), (N,); 0.5 where nobody has it.

    It lies midway between two examples; of equally good thresholds the highest is taken.
    """
    if not has_label.any():
        return 0.5
    order = np.argsort(-probabilities, kind="stable")
    falling = np.asarray(probabilities, np.float64)[order]
    f1 = 2 * np.cumsum(has_label[order]) / (np.arange(1, len(falling) + 1) + has_label.sum())
    below = np.append(falling[1:], 0.0)
    is_border = below < falling  # equal probabilities are predicted together
    best = int(np.argmax(np.where(is_border, f1, -1.0)))
    middle = (falling[best] + below[best]) / 2
    return float(middle if middle < falling[best] else below[best])
