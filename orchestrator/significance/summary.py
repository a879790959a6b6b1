"""Summary of the scores of a few seeds: their mean, their spread, and the interval that the mean is known to lie in."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from orchestrator.significance.distributions import t_quantile

LEVEL = 0.95
"""Probability of every interval unless another is asked for."""
ONE_SEED = "one seed"
"""Reason for which the noise of a single score is unknown."""
ROUNDING = 1e-12
"""Relative difference up to which scores are equal: means of equal scores are rounded."""
_LEAST_SPREAD = 1e-150
"""Difference up to which scores are equal: the square of a smaller one is no normal float."""


@dataclass(frozen=True)
class Interval:
    """An interval from `low` to `high`."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the distance between the ends."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Summary:
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
    variance = sample_variance(scores) if len(scores) > 1 else None
    return Summary(
        len(scores),
        fmean(scores),
        None if variance is None else math.sqrt(variance),
        None if variance is None else _interval(scores, variance, level, bounds),
        median(scores),
        min(scores),
        max(scores),
    )


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
    return None if len(scores) == 1 else _interval(scores, sample_variance(scores), level, bounds)


def _interval(
    scores: Sequence[float], variance: float, level: float, bounds: tuple[float, float] | None
) -> Interval | None:
    if not has_spread(scores):
        return None
    mean, half = fmean(scores), math.sqrt(variance / len(scores)) * t_quantile(level, len(scores) - 1)
    low, high = (-math.inf, math.inf) if bounds is None else bounds
    if not low <= min(scores) <= max(scores) <= high:
        low, high = -math.inf, math.inf
    return Interval(max(low, mean - half), min(high, mean + half))


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
        return ONE_SEED
    return f"{'two' if fewest == 2 else fewest} seeds that score the same"


def sample_variance(scores: Sequence[float]) -> float:
    """Variance of a sample of two or more scores, by n - 1; many times as fast as the exact fractions of `statistics`.

    Source: Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance, section 1: the two-pass form,
    here with exact sums.
    """
    mean = fmean(scores)
    return math.fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1)
