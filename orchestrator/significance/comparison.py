"""Comparison of groups over seeds, and of models over examples: tests, resampling, corrections, numbers of seeds.

scipy has no interval for its permutation test, which this one reads off the same arrangements as its p-value, and no
resamples by weights, so that scores of examples would take minutes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from orchestrator.significance.summary import (
    LEVEL,
    ROUNDING,
    Interval,
    has_spread,
    normal_quantile,
    sample_variance,
    t_p_value,
    t_quantile,
)

MOST_EXACT_PAIRS = 16
"""Maximum number of pairs for the exact permutation test; for more, `NUM_DRAWN` arrangements are drawn."""
NUM_DRAWN = 20_000
NUM_RESAMPLES = 2_000
_DRAWN_AT_A_TIME = 2_000_000
"""Numbers drawn at a time, so that memory stays small however many examples there are."""
_SEED = 0
"""Seed of whatever is drawn: the same scores have the same intervals."""
POWER = 0.8
"""Power of the tests for which numbers of seeds are computed."""
MOST_SEEDS = 100_000
"""Maximum number of seeds; a difference that needs more counts as undetectable."""

Numbers = NDArray[np.float64]
ScoreOfWeights = Callable[[Numbers], Numbers]
"""Function from weights (R, N), how often each of N examples was drawn in each of R resamples, to R scores."""


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
    means = _subset_means(values)
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


def _subset_means(values: Numbers) -> Numbers:
    """Means of every subset of the values but the empty one; of more than `MOST_EXACT_PAIRS`, of random subsets."""
    if len(values) > MOST_EXACT_PAIRS:  # each value is in half of them
        chosen = np.random.default_rng(_SEED).integers(0, 2, size=(NUM_DRAWN, len(values))).astype(float)
        sizes = chosen.sum(axis=1)
        drawn: Numbers = (chosen @ values)[sizes > 0] / sizes[sizes > 0]
        return drawn
    sums, sizes = np.zeros(1), np.zeros(1)
    for value in values:
        sums, sizes = np.concatenate([sums, sums + value]), np.concatenate([sizes, sizes + 1])
    means: Numbers = sums[1:] / sizes[1:]
    return means


def compare_over_examples(num_examples: int, first: ScoreOfWeights, second: ScoreOfWeights) -> DifferenceResult:
    """Compare two models over the examples that both answered, examples being drawn with both their answers.

    An example that is drawn several times counts with that weight: no resample is written out, so that scores are
    products of matrices. The p-value is twice the share of resamples, one more added, whose difference has the other
    sign or none. Resamples that all differ by the same amount show no noise, and give no interval.

    Source: Koehn (2004), Statistical significance tests for machine translation evaluation, section 4 (paired
    bootstrap); two-sided as in Efron and Tibshirani (1993), 16.4, with one resample added as a test needs it (Davison
    and Hinkley, 1997, 4.2.2).
    """
    once = np.ones((1, num_examples))
    value = float(first(once)[0] - second(once)[0])
    rng, drawn = np.random.default_rng(_SEED), []
    at_a_time = max(1, _DRAWN_AT_A_TIME // num_examples)
    for begin in range(0, NUM_RESAMPLES, at_a_time):
        size = min(at_a_time, NUM_RESAMPLES - begin)
        weights = rng.multinomial(num_examples, np.full(num_examples, 1 / num_examples), size=size).astype(float)
        drawn.append(first(weights) - second(weights))
    differences = np.concatenate(drawn)
    against = min(int(np.sum(differences <= 0)), int(np.sum(differences >= 0)))
    p_value = min(1.0, 2.0 * (1 + against) / (NUM_RESAMPLES + 1))
    low, high = map(float, np.quantile(differences, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    return DifferenceResult(value, Interval(low, high) if np.ptp(differences) > ROUNDING else None, p_value)


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
