"""Ranking by a few seeds: moderated intervals, the groups that may be the best, and how often the best leads.

Alone: pytest tests/orchestrator/significance/test_ranking.py
"""

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from orchestrator.significance.ranking import SeedNoise, digamma, trigamma
from orchestrator.significance.summary import Summary, summarize

SCORES = st.lists(st.integers(0, 10_000).map(lambda number: number / 10_000), min_size=2, max_size=12)


def noise_of(*groups: list[float]) -> SeedNoise:
    noise = SeedNoise.of(list(map(summarize, groups)))
    assert noise is not None
    return noise


@pytest.mark.parametrize("x", [0.01, 0.5, 1.0, 2.5, 9.99, 10.0, 33.3, 1e4])
def test_derivatives_of_the_gamma_function_are_those_of_scipy(x: float) -> None:
    assert digamma(x) == pytest.approx(special.digamma(x), rel=1e-12)
    assert trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-12)


def test_variances_that_differ_are_moderated_as_limma_does() -> None:
    sds, degrees = np.array([0.001, 0.02, 0.004, 0.05, 0.0005]), np.array([2, 2, 4, 1, 2])
    groups = [Summary(d + 1, 0.8, sd, 0.8, 0.8, 0.8) for sd, d in zip(sds.tolist(), degrees.tolist(), strict=True)]
    logs = np.log(sds**2) - special.digamma(degrees / 2) + np.log(degrees / 2)
    excess = logs.var(ddof=1) - special.polygamma(1, degrees / 2).mean()
    half = optimize.brentq(lambda x: special.polygamma(1, x) - excess, 1e-3, 1e3)
    expected = math.exp(logs.mean() + special.digamma(half) - math.log(half))
    noise = SeedNoise.of(groups)
    assert noise == (pytest.approx(expected), pytest.approx(2 * half), 11)
    moderated = (2 * half * expected + 4 * sds[2] ** 2) / (2 * half + 4)
    assert noise.of_mean(groups[2]) == (pytest.approx(moderated / 5), pytest.approx(2 * half + 4))


def test_variances_that_differ_by_no_more_than_chance_are_pooled() -> None:
    first, second = [0.80, 0.82], [0.70, 0.71, 0.73]
    noise, pooled = noise_of(first, second), (np.var(first) * 2 + np.var(second) * 3) / 3
    assert noise == (pytest.approx(pooled), math.inf, 3)
    expected = stats.ttest_ind(first, second)
    found = noise.compare(summarize(first), summarize(second))
    assert (found.interval, found.p_value) == (
        pytest.approx(tuple(expected.confidence_interval())),
        pytest.approx(expected.pvalue),
    )


@given(SCORES)
def test_the_interval_of_a_group_alone_is_students(scores: list[float]) -> None:
    noise, summary = SeedNoise.of([summarize(scores)]), summarize(scores)
    if len(set(scores)) == 1:
        assert noise is None
        return
    assert noise is not None
    expected = stats.ttest_1samp(scores, 0.5).confidence_interval(0.95)
    assert noise.interval(summary) == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("scores", [[0.7], [0.7, 0.7], [0.3, 0.1 + 0.2, 0.3], [0.0, 5e-324], [1e200, 1.0]])
def test_seeds_that_tell_nothing_have_the_noise_of_others(scores: list[float]) -> None:
    assert SeedNoise.of([summarize(scores), summarize([0.5])]) is None
    noise = noise_of(scores, [0.80, 0.82, 0.81])
    assert noise == noise_of([0.80, 0.82, 0.81])
    assert noise.of_mean(summarize(scores)) == (pytest.approx(0.01**2 / len(scores)), 2)


def test_an_interval_ends_at_the_bounds_of_its_score() -> None:
    summary, noise = summarize([0.999, 1.0, 0.96]), noise_of([0.999, 1.0, 0.96])
    plain = noise.interval(summary)
    assert plain.high > 1.0
    assert noise.interval(summary, (0.0, 1.0)) == (plain.low, 1.0)
    in_percent = summarize([99.9, 100.0, 96.0])
    assert noise.interval(in_percent, (0.0, 1.0)) == noise.interval(in_percent), "these are no bounds of its own"


def test_a_group_may_be_the_best_unless_the_best_mean_is_significantly_better() -> None:
    groups = list(map(summarize, ([0.90, 0.91, 0.92], [0.89, 0.91, 0.93], [0.50, 0.51, 0.52], [0.905], [0.6])))
    noise = SeedNoise.of(groups)
    assert noise is not None
    assert [noise.may_be_best(group, groups[0], 5) for group in groups] == [True, True, False, True, False]
    assert [noise.may_be_best(group, groups[2], 5) for group in groups] == [False, False, True, False, False]
    assert noise.may_be_best(groups[0], groups[0], 1)


class Simulated(NamedTuple):
    """Shares of simulated rankings, or of their intervals."""

    best_first_by_mean: float
    best_first_by_lower: float
    covered: float
    best_kept: float


def simulated(
    spread: float, *, num_seeds: int = 3, num_of_one_seed: int = 0, ahead: float = 1.5, num_rankings: int = 800
) -> Simulated:
    """Rank 20 recipes, the first 1.5 standard deviations ahead, whose noise differs by a factor of e^±spread.

    Args:
        num_of_one_seed: recipes that ran with one seed only, the last ones.
        ahead: standard deviations of a score that the first one is ahead by.
    """
    rng, size = np.random.default_rng(1), 20
    means = np.zeros(size)
    means[0] = 0.01 * ahead
    by_mean, by_lower, covered, kept = 0, 0, 0, 0
    for _ in range(num_rankings):
        sds = 0.01 * np.exp(spread * rng.normal(size=size) - spread**2 / 2)
        scores = (means[:, None] + sds[:, None] * rng.normal(size=(size, num_seeds))).tolist()
        groups = [summarize(own[:1] if place >= size - num_of_one_seed else own) for place, own in enumerate(scores)]
        noise = SeedNoise.of(groups)
        assert noise is not None
        intervals = list(map(noise.interval, groups))
        best = max(groups, key=lambda group: group.mean)
        by_mean += best is groups[0]
        by_lower += max(intervals, key=lambda interval: interval.low) is intervals[0]
        covered += sum(own.low <= mean <= own.high for own, mean in zip(intervals, means, strict=True))
        kept += noise.may_be_best(groups[0], best, size)
    return Simulated(
        by_mean / num_rankings, by_lower / num_rankings, covered / num_rankings / size, kept / num_rankings
    )


def test_the_best_of_twenty_recipes_leads_where_noise_is_equal() -> None:
    found = simulated(0.0)
    assert found.best_first_by_mean >= 0.70
    assert found.best_first_by_lower >= 0.70
    assert 0.92 <= found.covered <= 0.96
    assert found.best_kept >= 0.95


def test_the_worse_end_finds_the_best_where_noise_differs() -> None:
    found = simulated(1.0)
    assert found.best_first_by_lower >= 0.60 > found.best_first_by_mean
    assert 0.92 <= found.covered <= 0.96
    assert found.best_kept >= 0.95


def test_the_worse_end_finds_the_best_where_half_of_the_recipes_have_one_seed() -> None:
    found = simulated(0.0, num_of_one_seed=10)
    assert found.best_first_by_lower >= 0.70 > found.best_first_by_mean
    assert 0.92 <= found.covered <= 0.96


def test_the_best_of_equal_recipes_is_kept() -> None:
    assert simulated(0.0, ahead=0.0).best_kept >= 0.95
