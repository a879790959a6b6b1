"""Number of seeds that would tell a difference of a given size from noise of a given size."""

from collections.abc import Callable

from orchestrator.significance.distributions import normal_quantile, t_quantile
from orchestrator.significance.paired_permutation import MOST_EXACT_PAIRS, least_p_value
from orchestrator.significance.summary import LEVEL

POWER = 0.8
"""Probability with which the seeds are to find the difference."""
MOST_SEEDS = 100_000
"""Number above which a difference is said to be settled by no number of seeds."""


def seeds_of_each_group(
    difference: float, first_sd: float, second_sd: float, level: float = LEVEL, power: float = POWER
) -> int | None:
    """Seeds that each of two independent groups needs, so that a true difference of this size is found.

    None where more than `MOST_SEEDS` would be needed, as for no difference at all.

    Source: Snedecor and Cochran (1989), Statistical Methods, 6.14: n = (t + t')² (s₁² + s₂²) / d², with quantiles of
    Student's t for the test and for the power, and degrees of freedom that follow from n.
    """
    return _least_number(difference, first_sd**2 + second_sd**2, lambda n: 2 * (n - 1), level, power)


def pairs_of_seeds(difference: float, sd: float, level: float = LEVEL, power: float = POWER) -> int | None:
    """Pairs of equal seeds that two groups need; `sd` is that of the pairs' differences.

    At least as many as let the permutation test find anything, where any number does: more than `MOST_EXACT_PAIRS` give
    no smaller p-values. None as in `seeds_of_each_group`.

    Source: Snedecor and Cochran (1989), Statistical Methods, 6.14.
    """
    number = _least_number(difference, sd**2, lambda n: n - 1, level, power)
    if number is None:
        return None
    while number < MOST_EXACT_PAIRS and least_p_value(number) > 1.0 - level:
        number += 1
    return number


def _least_number(
    difference: float, variance: float, degrees_of: Callable[[int], int], level: float, power: float
) -> int | None:
    """Smallest number from 2 on that is at least (t + t')² · variance / difference²; the right side falls with it."""

    def needed(number: int) -> float:
        degrees = degrees_of(number)
        # One side alone counts in the power: beyond it lie 1 - power, so that both sides leave 2 · power - 1 within.
        return (t_quantile(level, degrees) + t_quantile(2 * power - 1, degrees)) ** 2 * ratio

    if not difference:
        return None
    ratio = variance / difference**2
    if (normal_quantile(level) + normal_quantile(2 * power - 1)) ** 2 * ratio > MOST_SEEDS:
        return None
    low, high = 1, 2
    while needed(high) > high:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needed(middle) > middle else (low, middle)
    return high
