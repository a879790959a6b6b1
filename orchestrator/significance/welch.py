"""Difference of two groups' means, the scores of both being independent, by Welch's test."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.significance.distributions import t_p_value, t_quantile
from orchestrator.significance.summary import LEVEL, Interval, has_spread, sample_variance


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

    A group of a single score shows no noise, nor does one whose scores are all equal, however many they are: a variance
    of zero would make any difference certain. So would one that is too small for a float.

    Source: Welch (1947), The generalization of "Student's" problem when several different population variances are
    involved, with the degrees of freedom of Satterthwaite (1946), An approximate distribution of estimates of variance
    components.
    """
    difference = fmean(first) - fmean(second)
    noise = _error_and_degrees(first, second)
    if noise is None:
        return WelchResult(difference, None, None)
    error, degrees = noise
    half = t_quantile(level, degrees) * error
    p_value = t_p_value(difference / error, degrees)
    return WelchResult(difference, Interval(difference - half, difference + half), p_value)


def means_p_value(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The p-value alone that `compare_means` gives: the interval takes twenty times as long, found by halving."""
    noise = _error_and_degrees(first, second)
    if noise is None:
        return None
    error, degrees = noise
    return t_p_value((fmean(first) - fmean(second)) / error, degrees)


def _error_and_degrees(first: Sequence[float], second: Sequence[float]) -> tuple[float, float] | None:
    """Standard error of the difference of two means, and its degrees of freedom; None where no noise is shown."""
    if not (has_spread(first) and has_spread(second)):
        return None
    parts = [sample_variance(scores) / len(scores) for scores in (first, second)]
    shares = [part / sum(parts) for part in parts]
    degrees = 1.0 / sum(share**2 / (len(scores) - 1) for share, scores in zip(shares, (first, second), strict=True))
    return math.sqrt(sum(parts)), degrees
