"""Permutations and bootstraps beside scipy's. Alone: pytest tests/orchestrator/significance/test_resampling.py"""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from orchestrator.significance import comparison
from orchestrator.significance.comparison import (
    bootstrap_interval,
    compare_over_examples,
    compare_pairs,
    least_p_value,
)

DIFFERENCES = st.lists(st.integers(-20, 20).map(lambda number: number / 100), min_size=1, max_size=8)


def drawn() -> dict[str, Any]:
    """How scipy draws: from a seed, and often enough that its own noise is a tenth of what is allowed."""
    return {"method": "percentile", "n_resamples": 99_999, "rng": np.random.default_rng(0)}


def by_definition(differences: list[float], shift: float = 0.0) -> float:
    """Share of all arrangements of signs whose mean is at least as far from zero."""
    values = np.asarray(differences) - shift
    sums = [abs(float(np.dot(signs, values))) for signs in product((1, -1), repeat=len(values))]
    return sum(found >= sums[0] - 1e-12 for found in sums) / len(sums)


@given(DIFFERENCES)
@settings(deadline=None)
def test_a_p_value_is_the_share_of_arrangements_that_are_as_extreme(differences: list[float]) -> None:
    assert compare_pairs(differences).p_value == pytest.approx(by_definition(differences))


@pytest.mark.parametrize("num_pairs", [2, 5, 6, 10, 13])
def test_a_p_value_is_scipys(num_pairs: int) -> None:
    rng = np.random.default_rng(num_pairs)
    first, second = rng.normal(0.4, 1.0, num_pairs), rng.normal(0.0, 1.0, num_pairs)
    expected = stats.permutation_test(
        (first, second),
        lambda one, other, axis: np.mean(one - other, axis=axis),
        permutation_type="samples",
        n_resamples=10**6,
        vectorized=True,
    )
    assert compare_pairs(list(first - second)).p_value == pytest.approx(expected.pvalue)


@given(st.lists(st.integers(-2000, 2000).map(lambda number: number / 10_000), min_size=6, max_size=8, unique=True))
@settings(deadline=None, max_examples=30)
def test_the_interval_holds_the_differences_that_the_test_does_not_reject(differences: list[float]) -> None:
    interval = compare_pairs(differences).interval
    assert interval is not None
    for end, outward in ((interval.low, -1e-6), (interval.high, 1e-6)):
        assert by_definition(differences, end + outward) <= 0.05 + 1e-12
        assert by_definition(differences, end - outward) > 0.05


def test_few_pairs_can_show_nothing_and_have_no_interval() -> None:
    found = compare_pairs([0.1, 0.2, 0.3, 0.4, 0.5])
    assert (found.p_value, found.interval) == (least_p_value(5), None)
    six = compare_pairs([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert six.p_value == least_p_value(6)
    assert six.interval is not None
    assert six.interval.low > 0


def test_drawn_arrangements_come_close_to_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = list(np.random.default_rng(5).normal(0.3, 1.0, 12))
    exact = compare_pairs(differences)
    monkeypatch.setattr(comparison, "MOST_EXACT_PAIRS", 11)
    drawn = compare_pairs(differences)
    assert drawn != exact
    assert drawn.p_value == pytest.approx(exact.p_value, abs=0.01)
    assert drawn.interval is not None
    assert exact.interval is not None
    assert (drawn.interval.low, drawn.interval.high) == pytest.approx(
        (exact.interval.low, exact.interval.high), abs=0.1
    )
    assert compare_pairs(differences) == drawn, "the same numbers give the same values"
    assert compare_pairs([1.0] * 40).p_value == pytest.approx(2 / 20_001, rel=0.01)


def test_a_bootstrap_interval_is_scipys() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.normal(0.8, 0.05, 9), rng.normal(0.75, 0.1, 7)
    expected = stats.bootstrap(
        (first, second), lambda one, other, axis: one.mean(axis=axis) - other.mean(axis=axis), **drawn()
    ).confidence_interval
    found = bootstrap_interval(list(first), list(second))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.004)


def test_a_paired_bootstrap_interval_is_scipys() -> None:
    differences = np.random.default_rng(3).normal(0.02, 0.03, 10)
    expected = stats.bootstrap((differences,), np.mean, **drawn()).confidence_interval
    found = bootstrap_interval(list(differences), [0.0])
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.001)


def f1_of_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """F1 of sums of hits, guesses and gold entities."""
    hits, guesses, gold = sums.T
    return np.asarray(2 * hits / np.maximum(guesses + gold, 1))


def test_models_are_compared_over_examples_as_by_drawing_each_anew() -> None:
    rng = np.random.default_rng(4)
    gold = rng.integers(0, 4, 200)
    one, other = (np.stack([rng.binomial(gold, share), gold, gold], axis=1) for share in (0.8, 0.7))
    found = compare_over_examples(200, lambda w: f1_of_sums(w @ one), lambda w: f1_of_sums(w @ other))
    indices = [rng.integers(0, 200, 200) for _ in range(2000)]
    drawn = [float((f1_of_sums(one[i].sum(0)[None]) - f1_of_sums(other[i].sum(0)[None]))[0]) for i in indices]
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert found.difference == pytest.approx(float((f1_of_sums(one.sum(0)[None]) - f1_of_sums(other.sum(0)[None]))[0]))
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high), abs=0.01)
    assert found.p_value < 0.05
    same = compare_over_examples(200, lambda w: f1_of_sums(w @ one), lambda w: f1_of_sums(w @ one))
    assert (same.difference, same.p_value) == (0.0, 1.0)
