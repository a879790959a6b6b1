"""Difference of two groups that were run with the same seeds, by a permutation test of the seeds' differences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.significance.summary import LEVEL, Interval

MOST_EXACT_PAIRS = 16
"""Number of pairs up to which every arrangement is looked at; of more, so many are drawn."""
NUM_DRAWN = 20_000
_ROUNDING = 1e-12


@dataclass(frozen=True)
class PairedResult:
    """Mean of the differences of pairs."""

    difference: float
    interval: Interval | None
    """Differences that the test does not reject; None where too few pairs bound it at that level."""
    p_value: float
    """Probability of a mean difference at least as large, on either side, when signs are a matter of chance."""
    is_exact: bool


def compare_pairs(differences: Sequence[float], level: float = LEVEL, seed: int = 0) -> PairedResult:
    """Test whether the mean of differences is zero, under which each of them could as well have the other sign.

    Nothing is assumed of the scores' distribution. The p-value and the interval are two sides of one test: the mean of
    all differences less θ is at most that of another arrangement of signs just where the mean of the differences with
    another sign, a subset of all, is at most θ. So the sorted means of subsets are the places where the p-value steps.

    Source: Fisher (1935), The Design of Experiments, section 21; the interval is of Hartigan (1969), Using subsample
    values as typical values, theorem 1; p-values of drawn arrangements as in Phipson and Smyth (2010), Permutation
    p-values should never be zero.

    Args:
        differences: one for each pair, at least one.
        seed: of the arrangements that are drawn, where there are more than `MOST_EXACT_PAIRS` pairs.
    """
    values = np.asarray(differences, dtype=float)
    is_exact = len(values) <= MOST_EXACT_PAIRS
    means = _all_subset_means(values) if is_exact else _drawn_subset_means(values, seed)
    num_arrangements = len(means) + 1
    difference = float(values.mean())
    rounding = _ROUNDING * float(np.abs(values).max())
    others = np.sum(means <= rounding) if difference > 0 else np.sum(means >= -rounding)
    p_value = 1.0 if abs(difference) <= rounding else min(1.0, 2.0 * (1 + int(others)) / num_arrangements)
    num_rejected = math.floor((1.0 - level) * num_arrangements / 2 + _ROUNDING)
    interval = None
    if num_rejected:
        means.sort()
        interval = Interval(float(means[num_rejected - 1]), float(means[-num_rejected]))
    return PairedResult(difference, interval, p_value, is_exact)


def least_p_value(num_pairs: int) -> float:
    """Smallest p-value that `compare_pairs` can give for so many pairs, however large their difference.

    >>> least_p_value(5), least_p_value(6)
    (0.0625, 0.03125)
    """
    return 2.0 ** (1 - num_pairs) if num_pairs <= MOST_EXACT_PAIRS else 2.0 / (NUM_DRAWN + 1)


def _all_subset_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of every subset of the values but the empty one."""
    sums, sizes = np.zeros(1), np.zeros(1)
    for value in values:
        sums, sizes = np.concatenate([sums, sums + value]), np.concatenate([sizes, sizes + 1])
    means: NDArray[np.float64] = sums[1:] / sizes[1:]
    return means


def _drawn_subset_means(values: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Means of random subsets; each value is in half of them."""
    chosen = np.random.default_rng(seed).integers(0, 2, size=(NUM_DRAWN, len(values))).astype(float)
    sizes = chosen.sum(axis=1)
    means: NDArray[np.float64] = (chosen @ values)[sizes > 0] / sizes[sizes > 0]
    return means
