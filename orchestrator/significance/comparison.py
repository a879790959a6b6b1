"""Comparison of two groups' means and of two models' answers, corrections for many, and the seeds that they need.

Standard library alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.significance.summary import (
    LEVEL,
    Interval,
    has_spread,
    normal_quantile,
    sample_variance,
    t_p_value,
    t_quantile,
)

MOST_EXACT_PAIRS = 16
"""Number of pairs up to which every arrangement is looked at; of more, so many are drawn."""
NUM_DRAWN = 20_000
POWER = 0.8
"""Probability with which the seeds are to find the difference."""
MOST_SEEDS = 100_000
"""Number above which a difference is said to be settled by no number of seeds."""


@dataclass(frozen=True)
class DifferenceResult:
    """Difference of two scores, the first one's minus the second one's."""

    difference: float
    interval: Interval | None
    """Differences that the test does not reject; None where the scores are too few, or do not show their noise."""
    p_value: float | None
    """Probability of a difference at least as large, on either side, without one; None where noise is not known."""


def compare_means(first: Sequence[float], second: Sequence[float]) -> DifferenceResult:
    """Compare two groups of scores whose spreads may differ, by Welch's test; each has at least one score.

    A group of a single score shows no noise, nor does one whose scores are all equal, however many they are: a variance
    of zero would make any difference certain. So would one that is too small for a float.

    Source: Welch (1947), The generalization of "Student's" problem when several different population variances are
    involved, with the degrees of freedom of Satterthwaite (1946), An approximate distribution of estimates of variance
    components.
    """
    difference = fmean(first) - fmean(second)
    if not (has_spread(first) and has_spread(second)):
        return DifferenceResult(difference, None, None)
    parts = [sample_variance(scores) / len(scores) for scores in (first, second)]
    shares = [part / sum(parts) for part in parts]
    degrees = 1.0 / sum(share**2 / (len(scores) - 1) for share, scores in zip(shares, (first, second), strict=True))
    error = math.sqrt(sum(parts))
    half, p_value = t_quantile(LEVEL, degrees) * error, t_p_value(difference / error, degrees)
    return DifferenceResult(difference, Interval(difference - half, difference + half), p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected p-values, in the order of those given: those below α keep the chance of any false finding below α.

    Source: Holm (1979), A simple sequentially rejective multiple test procedure, section 3, as adjusted values.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, number in enumerate(sorted(range(len(p_values)), key=lambda number: p_values[number])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[number]))
        corrected[number] = highest
    return corrected


@dataclass(frozen=True)
class McNemarResult:
    """Two accuracies over the same examples, the first one's minus the second one's."""

    only_first: int
    """Number of examples that the first model alone has right."""
    only_second: int
    """Number of examples that the second model alone has right."""
    difference: float
    interval: Interval
    """Interval of the difference of accuracies."""
    p_value: float
    """Exact probability of so uneven a split of these examples, on either side, between equal models."""


def compare_answers(first: Sequence[bool], second: Sequence[bool]) -> McNemarResult:
    """Compare two models by which of the same examples, at least one, each has right.

    Source: McNemar (1947), Note on the sampling error of the difference between correlated proportions or percentages,
    as the exact test: the sign test over the examples that differ. Dietterich (1998), Approximate statistical tests for
    comparing supervised classification learning algorithms, 3.1, recommends it for models that were trained once.
    """
    pairs = list(zip(first, second, strict=True))
    only_first = sum(one and not other for one, other in pairs)
    only_second = sum(other and not one for one, other in pairs)
    # Bonett and Price (2012), Adjusted Wald confidence interval for a difference of binomial proportions based on
    # paired data: one example is added to each kind that differs, which keeps the coverage of small samples.
    total = len(pairs) + 2
    one, other = (only_first + 1) / total, (only_second + 1) / total
    half = normal_quantile(LEVEL) * math.sqrt((one + other - (one - other) ** 2) / total)
    interval = Interval(max(-1.0, one - other - half), min(1.0, one - other + half))
    difference, p_value = (only_first - only_second) / len(pairs), sign_test(only_first, only_second)
    return McNemarResult(only_first, only_second, difference, interval, p_value)


def sign_test(num_first: int, num_second: int) -> float:
    """Probability that fair coins split as unevenly, on either side, as these two numbers.

    >>> sign_test(0, 5), sign_test(3, 3), sign_test(0, 0)
    (0.0625, 1.0, 1.0)
    """
    total, fewer = num_first + num_second, min(num_first, num_second)
    if 2 * fewer >= total:
        return 1.0
    arrangements = tail = 1
    for number in range(fewer):
        arrangements = arrangements * (total - number) // (number + 1)
        tail += arrangements
    return 2 * tail / (1 << total)  # of whole numbers, which no float would hold


def least_p_value(num_pairs: int) -> float:
    """Smallest p-value that `compare_pairs` can give for so many pairs, however large their difference.

    >>> least_p_value(5), least_p_value(6)
    (0.0625, 0.03125)
    """
    return 2.0 ** (1 - num_pairs) if num_pairs <= MOST_EXACT_PAIRS else 2.0 / (NUM_DRAWN + 1)


def seeds_of_each_group(difference: float, first_sd: float, second_sd: float, level: float = LEVEL) -> int | None:
    """Seeds that each of two independent groups needs, so that a true difference of this size is found.

    None where more than `MOST_SEEDS` would be needed, as for no difference at all.

    Source: Snedecor and Cochran (1989), Statistical Methods, 6.14: n = (t + t')² (s₁² + s₂²) / d², with quantiles of
    Student's t for the test and for the power, and degrees of freedom that follow from n.
    """
    return _least_number(difference, first_sd**2 + second_sd**2, lambda n: 2 * (n - 1), level)


def pairs_of_seeds(difference: float, sd: float, level: float = LEVEL) -> int | None:
    """Pairs of equal seeds that two groups need; `sd` is that of the pairs' differences.

    At least as many as let the permutation test find anything, where any number does: more than `MOST_EXACT_PAIRS` give
    no smaller p-values. None as in `seeds_of_each_group`.

    Source: Snedecor and Cochran (1989), Statistical Methods, 6.14.
    """
    number = _least_number(difference, sd**2, lambda n: n - 1, level)
    if number is None:
        return None
    while number < MOST_EXACT_PAIRS and least_p_value(number) > 1.0 - level:
        number += 1
    return number


def _least_number(difference: float, variance: float, degrees_of: Callable[[int], int], level: float) -> int | None:
    """Smallest number from 2 on that is at least (t + t')² · variance / difference²; the right side falls with it."""
    # One side alone counts in the power: beyond it lie 1 - POWER, so that both sides leave 2 · POWER - 1 within.
    levels = level, 2 * POWER - 1

    def needed(number: int) -> float:
        return sum(t_quantile(each, degrees_of(number)) for each in levels) ** 2 * ratio

    if not difference:
        return None
    ratio = variance / difference**2
    if sum(map(normal_quantile, levels)) ** 2 * ratio > MOST_SEEDS:
        return None
    low, high = 1, 2
    while needed(high) > high:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needed(middle) > middle else (low, middle)
    return high
