"""Resampling with numpy: permutations of the seeds' differences, and bootstraps of seeds and of examples.

scipy has the bootstraps of seeds, to the same digits. It has no interval for its permutation test, which this one reads
off the same arrangements as its p-value, and no resamples by weights, so that scores of examples would take minutes.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.significance.comparison import MOST_EXACT_PAIRS, NUM_DRAWN, DifferenceResult
from orchestrator.significance.summary import LEVEL, ROUNDING, Interval

NUM_RESAMPLES = 10_000
NUM_EXAMPLE_RESAMPLES = 2_000
_DRAWN_AT_A_TIME = 2_000_000
"""Numbers drawn at a time, so that memory stays small however many examples there are."""

Numbers = NDArray[np.float64]
ScoreOfWeights = Callable[[Numbers], Numbers]
"""Function from weights (R, N), how often each of N examples was drawn in each of R resamples, to R scores."""
_SEED = 0
"""Seed of whatever is drawn: the same scores have the same intervals."""


def compare_pairs(differences: Sequence[float]) -> DifferenceResult:
    """Test whether the mean of differences is zero, under which each of them could as well have the other sign.

    Nothing is assumed of the scores' distribution. The p-value and the interval are two sides of one test: the mean of
    all differences less θ is at most that of another arrangement of signs just where the mean of the differences with
    another sign, a subset of all, is at most θ. So the sorted means of subsets are the places where the p-value steps.

    Source: Fisher (1935), The Design of Experiments, section 21; the interval is of Hartigan (1969), Using subsample
    values as typical values, theorem 1; p-values of drawn arrangements as in Phipson and Smyth (2010), Permutation
    p-values should never be zero.

    Args:
        differences: one for each pair, at least one; of more than `MOST_EXACT_PAIRS`, arrangements are drawn.
    """
    values = np.asarray(differences, dtype=float)
    means = _all_subset_means(values) if len(values) <= MOST_EXACT_PAIRS else _drawn_subset_means(values)
    num_arrangements = len(means) + 1
    difference = float(values.mean())
    rounding = ROUNDING * float(np.abs(values).max())
    others = np.sum(means <= rounding) if difference > 0 else np.sum(means >= -rounding)
    p_value = 1.0 if abs(difference) <= rounding else min(1.0, 2.0 * (1 + int(others)) / num_arrangements)
    num_rejected = math.floor((1.0 - LEVEL) * num_arrangements / 2 + ROUNDING)
    interval = None
    if num_rejected:
        means.sort()
        interval = Interval(float(means[num_rejected - 1]), float(means[-num_rejected]))
    return DifferenceResult(difference, interval, p_value)


def _all_subset_means(values: Numbers) -> Numbers:
    """Mean of every subset of the values but the empty one."""
    sums, sizes = np.zeros(1), np.zeros(1)
    for value in values:
        sums, sizes = np.concatenate([sums, sums + value]), np.concatenate([sizes, sizes + 1])
    means: Numbers = sums[1:] / sizes[1:]
    return means


def _drawn_subset_means(values: Numbers) -> Numbers:
    """Means of random subsets; each value is in half of them."""
    chosen = np.random.default_rng(_SEED).integers(0, 2, size=(NUM_DRAWN, len(values))).astype(float)
    sizes = chosen.sum(axis=1)
    means: Numbers = (chosen @ values)[sizes > 0] / sizes[sizes > 0]
    return means


def bootstrap_interval(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Percentile interval of the difference of two means over independent scores, each group drawn on its own.

    It is too narrow for a few seeds: of five, the spread is underestimated by a tenth. Of pairs, it is that
    of their differences beside `[0.0]`, whole pairs being drawn.

    Source: Efron and Tibshirani (1993), An Introduction to the Bootstrap, 8.3 and 13.3.
    """
    rng = np.random.default_rng(_SEED)
    means = [
        scores[rng.integers(0, len(scores), size=(NUM_RESAMPLES, len(scores)))].mean(axis=1)
        for scores in (np.asarray(first, dtype=float), np.asarray(second, dtype=float))
    ]
    return _percentiles(means[0] - means[1])


def compare_over_examples(num_examples: int, first: ScoreOfWeights, second: ScoreOfWeights) -> DifferenceResult:
    """Compare two models over the examples that both answered, examples being drawn with both their answers.

    An example that is drawn several times counts with that weight: no resample is written out, so that scores are
    products of matrices. The p-value is twice the share of resamples, one more added, whose difference has the other
    sign or none.

    Source: Koehn (2004), Statistical significance tests for machine translation evaluation, section 4 (paired
    bootstrap); two-sided as in Efron and Tibshirani (1993), 16.4, with one resample added as a test needs it (Davison
    and Hinkley, 1997, 4.2.2).
    """
    once = np.ones((1, num_examples))
    value = float(first(once)[0] - second(once)[0])
    rng, drawn = np.random.default_rng(_SEED), []
    at_a_time = max(1, _DRAWN_AT_A_TIME // num_examples)
    for begin in range(0, NUM_EXAMPLE_RESAMPLES, at_a_time):
        size = min(at_a_time, NUM_EXAMPLE_RESAMPLES - begin)
        weights = rng.multinomial(num_examples, np.full(num_examples, 1 / num_examples), size=size).astype(float)
        drawn.append(first(weights) - second(weights))
    differences = np.concatenate(drawn)
    against = min(int(np.sum(differences <= 0)), int(np.sum(differences >= 0)))
    p_value = min(1.0, 2.0 * (1 + against) / (NUM_EXAMPLE_RESAMPLES + 1))
    return DifferenceResult(value, _percentiles(differences), p_value)


def _percentiles(differences: Numbers) -> Interval:
    low, high = np.quantile(differences, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def correlation_of(first: Numbers, second: Numbers, *, of_ranks: bool) -> ScoreOfWeights:
    """Correlation of two values of each example (N,), where examples count as often as they are drawn.

    It is 0 where the values of a side are all equal, as the metrics themselves have it.

    Source: Pearson (1895), Note on regression and inheritance in the case of two parents; Spearman (1904), The proof
    and measurement of association between two things: Pearson's correlation of ranks, equal values sharing the mean of
    theirs.
    """
    sides = [_ranks_of(values) if of_ranks else values for values in (first, second)]

    def score(weights: Numbers) -> Numbers:
        total = weights.sum(axis=1, keepdims=True)
        drawn = (side(weights) if callable(side) else side for side in sides)
        x, y = (values - (weights * values).sum(axis=1, keepdims=True) / total for values in drawn)  # (R, N)
        covariance, *variances = (np.einsum("rn,rn,rn->r", weights, *both) for both in ((x, y), (x, x), (y, y)))
        scale = np.sqrt(variances[0] * variances[1])
        correlation: Numbers = np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0)
        return correlation

    return score


def _ranks_of(values: Numbers) -> Callable[[Numbers], Numbers]:
    """Function from weights (R, N) to the examples' ranks (R, N) among all that are drawn, equal values sharing theirs.

    Values are sorted once: what is drawn changes how many stand below a value, not their order.
    """
    order = np.argsort(values)
    _, begins, place = np.unique(values[order], return_index=True, return_inverse=True)
    place_of_example = np.empty_like(place)
    place_of_example[order] = place

    def ranks(weights: Numbers) -> Numbers:
        equal = np.add.reduceat(weights[:, order], begins, axis=1)
        shared: Numbers = equal.cumsum(axis=1) - (equal - 1) / 2
        return shared[:, place_of_example]

    return ranks
