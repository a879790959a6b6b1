"""Ranking of groups by a few seeds each: intervals of their means, and the groups that may be the best.

Two to five seeds tell little about their own noise: an interval of them alone is decided by who happened to have a
small spread. All groups of a ranking together tell more, also about a group of one seed. Standard library alone.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean, variance
from typing import NamedTuple, Protocol, Self

from orchestrator.significance.summary import LEVEL, ROUNDING, Interval, t_p_value, t_quantile


class SeedStatistics(Protocol):
    """Scores of a group, one for each seed, in three numbers, as `Summary` has them."""

    @property
    def n(self) -> int: ...

    @property
    def mean(self) -> float: ...

    @property
    def sd(self) -> float | None:
        """Standard deviation of the sample, by n - 1; None of a single score."""


class MeanNoise(NamedTuple):
    """Variance of a mean, and its degrees of freedom."""

    variance: float
    degrees: float

    def half_width(self) -> float:
        """Half of the 95 % interval around the mean."""
        return t_quantile(LEVEL, self.degrees) * math.sqrt(self.variance)


class SeedNoise(NamedTuple):
    """Variance between seeds, estimated over all groups of a ranking; each group's own is moderated by it.

    A group's variance s² with d degrees of freedom becomes (d₀s₀² + ds²) / (d₀ + d), with d₀ + d of them. For one seed,
    d is 0; so it is for seeds that all score the same, as two do by chance on a few hundred examples, and any number of
    models that collapsed to one class.

    Source: Smyth (2004), Linear models and empirical Bayes methods for assessing differential expression in microarray
    experiments, section 6.2, as limma's `squeezeVar` has it: d₀ and s₀² by mean and variance of log s². Where the
    variances differ by no more than chance, they are pooled; no group has more degrees of freedom than all together.
    """

    variance: float
    """Expected variance of a group's scores, s₀²."""
    degrees: float
    """Degrees of freedom that it is worth, d₀; infinite where the variances are pooled."""
    most_degrees: float
    """Degrees of freedom of all groups together."""

    @classmethod
    def of(cls, groups: Sequence[SeedStatistics]) -> Self | None:
        """Noise of the seeds of some groups; None where no group has seeds that differ."""
        known = [(d, own) for d, own in map(_own_variance, groups) if d]
        if not known:
            return None
        most_degrees = sum(d for d, _ in known)
        logs = [math.log(own) - digamma(d / 2) + math.log(d / 2) for d, own in known]
        excess = variance(logs) - fmean(trigamma(d / 2) for d, _ in known) if len(known) > 1 else 0.0
        if excess <= 0.0:
            return cls(math.fsum(d * own for d, own in known) / most_degrees, math.inf, most_degrees)
        half = _inverse_trigamma(excess)
        return cls(math.exp(fmean(logs) + digamma(half) - math.log(half)), 2 * half, most_degrees)

    def of_mean(self, group: SeedStatistics) -> MeanNoise:
        """Noise of a group's mean."""
        d, own = _own_variance(group)
        share = d / (self.degrees + d)
        moderated = (1.0 - share) * self.variance + share * own
        return MeanNoise(moderated / group.n, min(self.degrees + d, self.most_degrees))

    def of_difference(self, first: SeedStatistics, second: SeedStatistics) -> MeanNoise:
        """Noise of the difference of two means.

        Source: Satterthwaite (1946), An approximate distribution of estimates of variance components.
        """
        one, other = self.of_mean(first), self.of_mean(second)
        total = one.variance + other.variance
        shares = (one.variance / total) ** 2 / one.degrees + (other.variance / total) ** 2 / other.degrees
        return MeanNoise(total, min(1.0 / shares, self.most_degrees))

    def interval(self, group: SeedStatistics, bounds: tuple[float, float] | None = None) -> Interval:
        """The 95 % interval of a group's mean.

        Args:
            bounds: smallest and largest value that a score can have, at which the interval ends; None for a score
                without bounds. They do not hold for a mean beyond them, as of scores in percent.
        """
        half = self.of_mean(group).half_width()
        low, high = group.mean - half, group.mean + half
        if bounds and bounds[0] <= group.mean <= bounds[1]:
            low, high = max(bounds[0], low), min(bounds[1], high)
        return Interval(low, high)


def may_be_best(groups: Sequence[SeedStatistics], noise: SeedNoise, *, is_better_lower: bool = False) -> list[bool]:
    """Whether each group may be the best: whether the group with the best mean is not significantly better.

    The truly best group is among these with a probability of 95 %: it is left out only where one of the G - 1 others
    beats it by luck, and each of these does with a probability of at most 0.05 / (G - 1), on one side. As only
    one group is the best, nothing is corrected for the number of groups that are left out. Holm's method over the
    differences to the first place promises nothing of the kind, since the first place was chosen by the scores, and
    leaves out fewer: with three seeds it keeps 17.6 of 20 groups of which one is 1.5 standard deviations ahead, this
    17.2, and 19.6 of 20 equal ones, this 19.3.

    Source: Gupta (1965), On some multiple decision (selection and ranking) rules; these are the groups whose upper end
    is not 0 in Hsu (1984), Constrained simultaneous confidence intervals for multiple comparisons with the best.
    Bonferroni's bound stands for Dunnett's quantile, since variances differ, and the best mean for every other one.
    """
    sign = -1.0 if is_better_lower else 1.0
    best = max(groups, key=lambda group: sign * group.mean)
    least_p_value = 2 * (1.0 - LEVEL) / max(1, len(groups) - 1)  # of both sides, as `t_p_value` has it
    found = []
    for group in groups:
        difference, (squared, degrees) = best.mean - group.mean, noise.of_difference(best, group)
        found.append(not difference or t_p_value(difference / math.sqrt(squared), degrees) >= least_p_value)
    return found


def _own_variance(group: SeedStatistics) -> tuple[int, float]:
    """Degrees of freedom and variance of a group's seeds; (0, 0.0) where they do not differ, by more than rounding."""
    sd, rounding = group.sd or 0.0, ROUNDING * group.mean
    variance = sd * sd  # ** 2 raises where the square overflows
    is_known = group.n > 1 and rounding * rounding < variance < math.inf
    return (group.n - 1, variance) if is_known else (0, 0.0)


def _inverse_trigamma(value: float) -> float:
    """Number whose `trigamma`, which falls, has this value, found by halving."""
    low, high = 1e-6, 1e9
    while high > (1 + 1e-9) * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if trigamma(middle) > value else (low, middle)
    return low


@lru_cache(4096)
def digamma(x: float) -> float:
    """Derivative of the logarithm of the gamma function, of a positive number.

    Source: Abramowitz and Stegun (1964), 6.3.5 and 6.3.18, of which six terms are enough from 10 on.
    """
    if x < 10.0:
        return digamma(x + 1.0) - 1.0 / x
    y = 1.0 / x**2
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132 - y * 691 / 32760)))))
    return math.log(x) - 0.5 / x - series


@lru_cache(4096)
def trigamma(x: float) -> float:
    """Derivative of `digamma`, of a positive number.

    Source: Abramowitz and Stegun (1964), 6.4.6 and 6.4.12, of which six terms are enough from 10 on.
    """
    if x < 10.0:
        return trigamma(x + 1.0) + 1.0 / x**2
    y = 1.0 / x**2
    series = y * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y * (1 / 30 - y * (5 / 66 - y * 691 / 2730)))))
    return 1.0 / x + y / 2 + series / x
