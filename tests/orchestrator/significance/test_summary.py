"""Summaries, Student's t and Welch's test beside scipy's.

Alone: pytest tests/orchestrator/significance/test_summary.py
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.significance.comparison import compare_means
from orchestrator.significance.summary import normal_quantile, summarize, t_p_value, t_quantile

SCORES = st.lists(st.integers(0, 10_000).map(lambda number: number / 10_000), min_size=2, max_size=12)


@pytest.mark.parametrize("degrees_of_freedom", [1, 1.4, 2, 5, 30, 500, 1e5])
@pytest.mark.parametrize("t", [0.0, 0.1, -1.0, 2.5, 10.0, 50.0])
def test_p_values_of_students_t_are_those_of_scipy(t: float, degrees_of_freedom: float) -> None:
    assert t_p_value(t, degrees_of_freedom) == pytest.approx(2 * stats.t.sf(abs(t), degrees_of_freedom), rel=1e-9)


@pytest.mark.parametrize("degrees_of_freedom", [1, 1.4, 2, 5, 30, 500, 1e5])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_quantiles_of_students_t_are_those_of_scipy(level: float, degrees_of_freedom: float) -> None:
    found = t_quantile(level, degrees_of_freedom)
    assert found == pytest.approx(stats.t.ppf((1 + level) / 2, degrees_of_freedom), rel=1e-9)


def test_students_t_becomes_the_normal_distribution_without_a_step() -> None:
    assert t_p_value(2.0, 2e6) == pytest.approx(t_p_value(2.0, 9.9e5), rel=1e-5)
    assert t_p_value(math.inf, 3) == 0.0


def test_the_normal_distribution_is_scipys() -> None:
    assert t_p_value(-1.7, 1e9) == pytest.approx(2 * stats.norm.sf(1.7))
    assert normal_quantile(0.95) == pytest.approx(stats.norm.ppf(0.975))


def test_a_summary_has_what_a_group_shows() -> None:
    found = summarize([0.7, 0.9, 0.8, 0.8])
    assert (found.n, found.mean, found.median, found.lowest, found.highest) == pytest.approx((4, 0.8, 0.8, 0.7, 0.9))
    assert found.sd == pytest.approx(stats.tstd([0.7, 0.9, 0.8, 0.8]))
    assert summarize([0.7]) == (1, 0.7, None, 0.7, 0.7, 0.7)


@pytest.mark.filterwarnings("ignore:Precision loss")
@given(SCORES, SCORES)
@pytest.mark.heavy
def test_two_means_are_compared_as_scipy_does(first: list[float], second: list[float]) -> None:
    found = compare_means(first, second)
    if min(len(set(first)), len(set(second))) == 1:
        assert (found.interval, found.p_value) == (None, None)
        return
    assert found.interval is not None
    assert found.p_value is not None
    expected = stats.ttest_ind(first, second, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert (found.interval.low, found.interval.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)
    assert (found.p_value < 0.05) == (not found.interval.low <= 0 <= found.interval.high)


def test_the_noise_of_one_seed_is_not_known() -> None:
    found = compare_means([0.9], [0.5, 0.51])
    assert (found.difference, found.interval, found.p_value) == (pytest.approx(0.395), None, None)


@pytest.mark.parametrize("num_seeds", [2, 3, 12])
def test_the_noise_of_seeds_that_score_the_same_is_not_known(num_seeds: int) -> None:
    assert compare_means([0.684] * num_seeds, [0.686] * num_seeds).p_value is None
    assert compare_means([0.684] * num_seeds, [0.80, 0.86, 0.74]).p_value is None
    assert compare_means([0.80, 0.86, 0.74], [0.684] * num_seeds).p_value is None


def test_scores_whose_variance_is_too_small_for_a_float_show_no_noise() -> None:
    assert compare_means([0.0, 5e-324], [0.0, 5e-324]).p_value is None


def test_scores_whose_squares_are_no_floats_are_of_unknown_spread() -> None:
    summary = summarize([1e200, 1.0, 3.0])
    assert (summary.sd, summary.median, summary.highest) == (math.inf, 3.0, 1e200)
