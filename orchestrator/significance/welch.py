"""Difference of two groups' means, the scores of both being independent, by Welch's test."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.significance.distributions import t_p_value, t_quantile
from orchestrator.significance.summary import LEVEL, ROUNDING, Interval, sample_variance


@dataclass(frozen=True)
class WelchResult:
    """Difference of two means, the first one's minus the second one's."""

    difference: float
    interval: Interval | None
    """Interval of the difference; None where the scores do not show their noise, as `compare_means` says."""
    p_value: float | None
    """Probability of a difference at least as large, on either side, between groups with the same mean."""


def compare_means(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> WelchResult:
    """Compare two groups of scores whose spreads may differ; each has at least one score.

    A group of a single score shows no noise, nor do two groups without any spread of which one has two scores alone: a
    pair is equal by luck too often. Three equal scores or more on both sides differ surely, or not at all.

    Source: Welch (1947), The generalization of "Student's" problem when several different population variances are
    involved, with the degrees of freedom of Satterthwaite (1946), An approximate distribution of estimates of variance
    components.
    """
    difference = fmean(first) - fmean(second)
    if min(len(first), len(second)) < 2:
        return WelchResult(difference, None, None)
    parts = [sample_variance(scores) / len(scores) for scores in (first, second)]
    error = math.sqrt(sum(parts))
    if error <= ROUNDING * max(map(abs, [*first, *second])):  # equal scores, whose mean is rounded
        if min(len(first), len(second)) < 3:
            return WelchResult(difference, None, None)
        is_same = math.isclose(fmean(first), fmean(second), rel_tol=ROUNDING)
        return WelchResult(difference, Interval(difference, difference), 1.0 if is_same else 0.0)
    shares = [part / sum(parts) for part in parts]
    degrees = 1.0 / sum(share**2 / (len(scores) - 1) for share, scores in zip(shares, (first, second), strict=True))
    half = t_quantile(level, degrees) * error
    p_value = t_p_value(difference / error, degrees)
    return WelchResult(difference, Interval(difference - half, difference + half), p_value)


def is_more_than_noise(first: Sequence[float], second: Sequence[float]) -> bool | None:
    """Whether two means differ at the usual level; None where the scores do not show their noise."""
    p_value = compare_means(first, second).p_value
    return None if p_value is None else p_value < 1.0 - LEVEL
