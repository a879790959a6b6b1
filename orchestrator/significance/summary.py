"""Summary of the scores of a few seeds: their mean, their spread, and the interval that the mean is known to lie in."""

import math
from collections.abc import Sequence
from operator import mul
from statistics import median
from typing import NamedTuple

from orchestrator.significance.distributions import t_quantile

LEVEL = 0.95
"""Probability of every interval unless another is asked for."""
ONE_SEED = "one seed"
"""Reason for which the noise of a single score is unknown."""
ROUNDING = 1e-12
"""Relative difference up to which scores are equal: means of equal scores are rounded."""
_LEAST_SPREAD = 1e-150
"""Difference up to which scores are equal: the square of a smaller one is no normal float."""


class Interval(NamedTuple):
    """An interval from `low` to `high`."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the distance between the ends."""
        return (self.high - self.low) / 2


class Summary(NamedTuple):
    """Scores of a group, one for each seed, in a few numbers."""

    n: int
    mean: float
    sd: float | None
    """Standard deviation of the sample, by n - 1; None of a single score."""
    interval: Interval | None
    """Interval of the mean; None where the scores do not show their noise, as `mean_interval` says."""
    median: float
    lowest: float
    highest: float


def summarize(scores: Sequence[float], level: float = LEVEL, bounds: tuple[float, float] | None = None) -> Summary:
    """Summarize finite scores, at least one; `bounds` are those of `mean_interval`.

    >>> summarize([0.8, 0.9]).sd is None, summarize([0.8]).sd is None
    (False, True)
    """
    n, mean, low, high = len(scores), math.fsum(scores) / len(scores), min(scores), max(scores)
    if n == 1:
        return Summary(n, mean, None, None, mean, low, high)
    variance = _variance(scores, mean)
    interval = None
    if _is_spread(low, high):
        half = math.sqrt(variance / n) * t_quantile(level, n - 1)
        interval = Interval(mean - half, mean + half)
        if bounds and bounds[0] <= low <= high <= bounds[1]:
            interval = Interval(max(bounds[0], interval.low), min(bounds[1], interval.high))
    return Summary(n, mean, math.sqrt(variance), interval, median(scores), low, high)


def mean_interval(
    scores: Sequence[float], level: float = LEVEL, bounds: tuple[float, float] | None = None
) -> Interval | None:
    """Interval of the mean of normally distributed scores; None of a single one, and of scores that are all equal.

    Seeds that score the same are no sign of small noise: two on a few hundred examples do every tenth time or so, and
    any number of models that collapsed to one class do. An interval without width would count them as certain.

    Source: Student (1908), The probable error of a mean: mean ± t · s / √n with n - 1 degrees of freedom. It takes no
    account of bounds; what lies beyond them is cut off, which takes nothing from the interval that a mean can be in.

    Args:
        bounds: smallest and largest value that a score can have; None for a score without bounds. They are none where
            a score lies beyond them, as one in percent.
    """
    return summarize(scores, level, bounds).interval


def has_spread(scores: Sequence[float]) -> bool:
    """Whether scores differ by more than rounding; a single one does not.

    >>> has_spread([0.3, 0.300001]), has_spread([0.3, 0.1 + 0.2, 0.3])
    (True, False)
    """
    return _is_spread(min(scores), max(scores))


def _is_spread(low: float, high: float) -> bool:
    return not math.isclose(low, high, rel_tol=ROUNDING, abs_tol=_LEAST_SPREAD)


def why_noise_is_unknown(*groups: Sequence[float]) -> str:
    """Words on why groups of scores, a score for each seed, show no noise, where they have no interval.

    >>> why_noise_is_unknown([0.8, 0.9], [0.7]), why_noise_is_unknown([0.8, 0.8]), why_noise_is_unknown([0.8] * 5)
    ('one seed', 'two seeds that score the same', '5 seeds that score the same')
    """
    fewest = min(len(scores) for scores in groups if not has_spread(scores))
    if fewest < 2:
        return ONE_SEED
    return f"{'two' if fewest == 2 else fewest} seeds that score the same"


def sample_variance(scores: Sequence[float]) -> float:
    """Variance of a sample of two or more scores, by n - 1; many times as fast as the exact fractions of `statistics`.

    Source: Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance, section 1: the two-pass form,
    here with exact sums.
    """
    return _variance(scores, math.fsum(scores) / len(scores))


def _variance(scores: Sequence[float], mean: float) -> float:
    deviations = [score - mean for score in scores]
    return math.fsum(map(mul, deviations, deviations)) / (len(scores) - 1)  # ** 2 raises where the square overflows
