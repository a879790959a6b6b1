"""Spearman's correlation of values over examples that are drawn again."""

from collections.abc import Callable

import numpy as np

from orchestrator.significance.bootstrap import Numbers, ScoreOfWeights


def spearman_of(first: Numbers, second: Numbers) -> ScoreOfWeights:
    """Spearman's correlation of two values of each example (N,), where examples count as often as they are drawn.

    It is 0 where the values of a side are all equal, as the metric itself has it.

    Source: Spearman (1904), The proof and measurement of association between two things: Pearson's correlation of
    ranks, equal values sharing the mean of theirs.
    """
    sides = [_ranks_of(values) for values in (first, second)]

    def score(weights: Numbers) -> Numbers:
        middle = (weights.sum(axis=1, keepdims=True) + 1) / 2
        x, y = (ranks(weights) - middle for ranks in sides)  # (R, N)
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
