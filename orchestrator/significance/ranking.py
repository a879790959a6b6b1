"""Ranking of groups by a few seeds each: intervals of their means, and the groups that may be the best.

Two to five seeds tell little about their own noise: an interval of them alone is decided by who happened to have a
small spread. All groups of a ranking together tell more, also about a group of one seed. Numbers of many groups are
columns of numpy, G of them.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from orchestrator.significance.comparison import DifferenceResult
from orchestrator.significance.summary import LEVEL, ROUNDING, Interval, Summary, t_p_value, t_quantile

Column = NDArray[Any]


class SeedStatistics(NamedTuple):
    """Scores of a group, one for each seed, in three numbers of `Summary`; the third of a single score is 0."""

    n: int
    mean: float
    sd: float


Group = Summary | SeedStatistics


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
    def of(cls, groups: Sequence[Group]) -> Self | None:
        """Noise of the seeds of some groups; None where no group has seeds that differ."""
        columns = [(group.n, group.mean, group.sd or 0.0) for group in groups]
        return cls.of_columns(*np.asarray(columns, dtype=float).T) if columns else None

    @classmethod
    def of_columns(cls, n: Column, mean: Column, sd: Column) -> Self | None:
        """Noise of the seeds of groups by number, mean and standard deviation of each one's seeds, (G,) each."""
        degrees, variances = _own_variances(n, mean, sd)
        d, own = degrees[degrees > 0], variances[degrees > 0]
        if not len(d):
            return None
        most_degrees = float(d.sum())
        logs = np.log(own) - _by_degrees(lambda d: digamma(d / 2) - math.log(d / 2), d)
        excess = float(logs.var(ddof=1) - _by_degrees(lambda d: trigamma(d / 2), d).mean()) if len(d) > 1 else 0.0
        if excess <= 0.0:
            return cls(float(d @ own) / most_degrees, math.inf, most_degrees)
        half = _inverse_trigamma(excess)
        return cls(math.exp(float(logs.mean()) + digamma(half) - math.log(half)), 2 * half, most_degrees)

    def half_widths(self, n: Column, mean: Column, sd: Column) -> Column:
        """Half of the 95 % interval of each group's mean, (G,)."""
        d, own = _own_variances(n, mean, sd)
        quantiles = _by_degrees(lambda d: t_quantile(LEVEL, self._degrees(d)), d)
        halves: Column = quantiles * np.sqrt(self._moderated(d, own) / n)
        return halves

    def of_mean(self, group: Group) -> MeanNoise:
        """Noise of a group's mean."""
        variance = (group.sd or 0.0) * (group.sd or 0.0)  # ** 2 raises where the square overflows
        d = group.n - 1 if _is_known(group.n, group.mean, variance) else 0
        return MeanNoise(self._moderated(d, variance if d else 0.0) / group.n, self._degrees(d))

    def _moderated(self, d: Any, own: Any) -> Any:
        """Variance of scores whose own variance has d degrees of freedom, of one group or of each of many."""
        share = d / (self.degrees + d)
        return (1.0 - share) * self.variance + share * own

    def _degrees(self, d: int) -> float:
        return min(self.degrees + d, self.most_degrees)

    def of_difference(self, first: Group, second: Group) -> MeanNoise:
        """Noise of the difference of two means.

        Source: Satterthwaite (1946), An approximate distribution of estimates of variance components.
        """
        one, other = self.of_mean(first), self.of_mean(second)
        total = one.variance + other.variance
        shares = (one.variance / total) ** 2 / one.degrees + (other.variance / total) ** 2 / other.degrees
        return MeanNoise(total, min(1.0 / shares, self.most_degrees))

    def compare(self, first: Group, second: Group) -> DifferenceResult:
        """The difference of two means, the first one's minus the second one's, beside this noise."""
        difference, noise = first.mean - second.mean, self.of_difference(first, second)
        half, p_value = noise.half_width(), t_p_value(difference / math.sqrt(noise.variance), noise.degrees)
        return DifferenceResult(difference, Interval(difference - half, difference + half), p_value)

    def interval(self, group: Group, bounds: tuple[float, float] | None = None) -> Interval:
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

    def may_be_best(self, group: Group, best: Group, num_groups: int) -> bool:
        """Whether a group may be the best of a ranking: whether the best mean is not significantly better.

        The truly best group is among these with a probability of 95 %: it is left out only where one of the G - 1
        others beats it by luck, and each of these does with a probability of at most 0.05 / (G - 1), on one side. As
        only one group is the best, nothing is corrected for the number of groups that are left out. Holm's method over
        the differences to the first place promises nothing of the kind, since the first place was chosen by the scores.

        Source: Gupta (1965), On some multiple decision (selection and ranking) rules; these are the groups whose upper
        end is not 0 in Hsu (1984), Constrained simultaneous confidence intervals for multiple comparisons with the
        best. Bonferroni's bound stands for Dunnett's quantile, since variances differ, and the best mean for every
        other one.

        Args:
            best: the group with the best mean.
            num_groups: number of groups that have a score.
        """
        difference, (squared, degrees) = abs(best.mean - group.mean), self.of_difference(best, group)
        least_p_value = 2 * (1.0 - LEVEL) / max(1, num_groups - 1)  # of both sides, as `t_p_value` has it
        t = difference / math.sqrt(squared) if difference else 0.0
        # Most groups are near or far by whatever degrees, which spares them the incomplete beta function.
        if t_p_value(t, math.inf) >= least_p_value:
            return True
        return t <= t_quantile(1.0 - least_p_value, self._degrees(0)) and t_p_value(t, degrees) >= least_p_value


def _own_variances(n: Column, mean: Column, sd: Column) -> tuple[Column, Column]:
    """Degrees of freedom and variance of each group's seeds; 0 of both where they differ by no more than rounding."""
    with np.errstate(over="ignore"):
        variances = sd * sd
        is_known = _is_known(n, mean, variances)
    return np.where(is_known, n - 1, 0).astype(int), np.where(is_known, variances, 0.0)


def _is_known(n: Any, mean: Any, variance: Any) -> Any:
    """Whether seeds differ, by more than rounding, so that their own variance is known."""
    rounding = ROUNDING * mean
    return (n > 1) & (rounding * rounding < variance) & (variance < math.inf)


def _by_degrees(function: Callable[[int], float], d: Column) -> Column:
    """Values (G,) of a function of degrees of freedom, of which few differ."""
    values = np.zeros(d.max() + 1)
    for each in np.flatnonzero(np.bincount(d)).tolist():
        values[each] = function(each)
    taken: Column = values[d]
    return taken


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
