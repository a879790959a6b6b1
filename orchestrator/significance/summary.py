"""Summary of the scores of a few seeds, and the distributions that tests rest on.

It needs the standard library alone, as a leaderboard does.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from statistics import NormalDist, median
from typing import NamedTuple

LEVEL = 0.95
"""Probability of every interval."""
ROUNDING = 1e-12
"""Relative difference up to which scores are equal: means of equal scores are rounded."""
_LEAST_SPREAD = 1e-150
"""Difference up to which scores are equal: the square of a smaller one is no normal float."""
_MOST_TERMS = 10_000
_NEGLIGIBLE = 1e-15
_TINY = 1e-300
_NORMAL_FROM = 1e6
"""Degrees of freedom from which Student's t equals the normal distribution in all shown digits."""


class Interval(NamedTuple):
    """An interval from `low` to `high`."""

    low: float
    high: float


class Summary(NamedTuple):
    """Scores of a group, one for each seed, in a few numbers."""

    n: int
    mean: float
    sd: float | None
    """Standard deviation of the sample, by n - 1; None of a single score."""
    median: float
    lowest: float
    highest: float


def summarize(scores: Sequence[float]) -> Summary:
    """Summarize finite scores, at least one.

    >>> summarize([0.5, 0.75]).median, summarize([0.5]).sd is None
    (0.625, True)
    """
    n, mean, low, high = len(scores), math.fsum(scores) / len(scores), min(scores), max(scores)
    if n == 1:
        return Summary(n, mean, None, mean, low, high)
    return Summary(n, mean, math.sqrt(sample_variance(scores)), median(scores), low, high)


def has_spread(scores: Sequence[float]) -> bool:
    """Whether scores differ by more than rounding; a single one does not.

    >>> has_spread([0.3, 0.300001]), has_spread([0.3, 0.1 + 0.2, 0.3])
    (True, False)
    """
    return not math.isclose(min(scores), max(scores), rel_tol=ROUNDING, abs_tol=_LEAST_SPREAD)


def why_noise_is_unknown(*groups: Sequence[float]) -> str:
    """Words on why groups of scores, a score for each seed, show no noise, where they have no interval.

    >>> why_noise_is_unknown([0.8, 0.9], [0.7]), why_noise_is_unknown([0.8, 0.8]), why_noise_is_unknown([0.8] * 5)
    ('one seed', 'two seeds that score the same', '5 seeds that score the same')
    """
    fewest = min(len(scores) for scores in groups if not has_spread(scores))
    if fewest < 2:
        return "one seed"
    return f"{'two' if fewest == 2 else fewest} seeds that score the same"


def sample_variance(scores: Sequence[float]) -> float:
    """Variance of a sample of two or more scores, by n - 1; many times as fast as the exact fractions of `statistics`.

    Source: Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance, section 1: the two-pass form,
    here with exact sums.
    """
    mean = math.fsum(scores) / len(scores)
    deviations = [score - mean for score in scores]
    return math.fsum(map(mul, deviations, deviations)) / (len(scores) - 1)  # ** 2 raises where the square overflows


def t_p_value(t: float, degrees_of_freedom: float) -> float:
    """Probability that Student's t lies at least as far from zero as `t`, on either side.

    Source: Abramowitz and Stegun (1964), Handbook of Mathematical Functions, 26.7.1 and 26.5.27: it is the incomplete
    beta function I_x(ν/2, 1/2) at x = ν / (ν + t²).

    >>> round(t_p_value(2.228, 10), 4)
    0.05
    """
    if math.isinf(t):
        return 0.0
    if degrees_of_freedom >= _NORMAL_FROM:
        return math.erfc(abs(t) / math.sqrt(2.0))
    squared = t * t
    whole = degrees_of_freedom + squared
    return _incomplete_beta(degrees_of_freedom / 2, 0.5, degrees_of_freedom / whole, squared / whole)


@lru_cache(4096)
def t_quantile(level: float, degrees_of_freedom: float) -> float:
    """Distance from zero within which Student's t lies with a probability of `level`, found by halving.

    >>> [round(t_quantile(0.95, num), 3) for num in (1, 2, 10)]
    [12.706, 4.303, 2.228]
    """
    outside = 1.0 - level
    low, high = 0.0, 1.0
    while t_p_value(high, degrees_of_freedom) > outside:
        low, high = high, 2.0 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_p_value(middle, degrees_of_freedom) > outside else (low, middle)
    return high


def normal_quantile(level: float) -> float:
    """Distance from zero within which a standard normal number lies with a probability of `level`."""
    return NormalDist().inv_cdf((1.0 + level) / 2)


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """Regularized incomplete beta function I_x(a, b), where `rest` is 1 - x without rounding.

    Source: Abramowitz and Stegun (1964), 26.5.8, a continued fraction, which is quick for x below the mean; above it
    I_x(a, b) = 1 - I_{1-x}(b, a) (26.5.2) is used.
    """
    if x <= 0.0 or rest <= 0.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(b, a, rest, x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest))
    return front * _continued_fraction(a, b, x) / a


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Value of the fraction 1 / (1 + d₁/(1 + d₂/(1 + …))) of 26.5.8.

    Source: Lentz (1976), Generating Bessel functions in Mie scattering calculations: products of ratios of neighbors.
    """
    numerator, denominator = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0) or _TINY)
    value = denominator
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for d in (even, odd):
            denominator = 1.0 / (1.0 + d * denominator or _TINY)
            numerator = 1.0 + d / numerator or _TINY
            value *= numerator * denominator
        if abs(numerator * denominator - 1.0) < _NEGLIGIBLE:
            break
    return value
