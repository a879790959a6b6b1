"""Permutations and bootstraps, McNemar's test, Holm's correction and numbers of seeds, beside scipy's.

Alone: pytest tests/orchestrator/significance/test_comparison.py
"""

from itertools import combinations, product
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from orchestrator.significance import comparison
from orchestrator.significance.comparison import (
    MOST_EXACT_PAIRS,
    compare_answers,
    compare_over_examples,
    compare_pairs,
    holm,
    least_p_value,
    pairs_of_seeds,
    seeds_of_each_group,
    sign_test,
)


@pytest.mark.parametrize(("one", "other"), [(0, 5), (3, 9), (6, 7), (100, 150), (700, 700), (5000, 5200)])
def test_the_exact_test_is_scipys_of_fair_coins(one: int, other: int) -> None:
    assert sign_test(one, other) == pytest.approx(stats.binomtest(one, one + other).pvalue)
    assert sign_test(other, one) == sign_test(one, other)


def answers(both: int, only_first: int, only_second: int, neither: int) -> tuple[list[bool], list[bool]]:
    """Right answers of two models, of each kind so many."""
    kinds = [(True, True, both), (True, False, only_first), (False, True, only_second), (False, False, neither)]
    pairs = [(one, other) for one, other, number in kinds for _ in range(number)]
    return [one for one, _ in pairs], [other for _, other in pairs]


def test_two_models_are_compared_by_the_examples_that_one_alone_has_right() -> None:
    found = compare_answers(*answers(60, 25, 10, 5))
    assert (found.only_first, found.only_second, found.difference) == (25, 10, 0.15)
    assert found.p_value == pytest.approx(stats.binomtest(10, 35).pvalue)
    assert found.interval.low > 0


def test_equal_answers_show_no_difference() -> None:
    found = compare_answers(*answers(3, 0, 0, 2))
    assert (found.difference, found.p_value) == (0.0, 1.0)
    assert found.interval.low < 0 < found.interval.high


@pytest.mark.parametrize(("one", "other"), [(0.1, 0.1), (0.05, 0.2), (0.02, 0.01)])
def test_the_interval_covers_the_true_difference_as_often_as_it_says(one: float, other: float) -> None:
    """Summed over all outcomes of 40 examples, not simulated."""
    covered = 0.0
    for only_first in range(41):
        for only_second in range(41 - only_first):
            interval = compare_answers(*answers(40 - only_first - only_second, only_first, only_second, 0)).interval
            if interval.low <= one - other <= interval.high:
                counts = [only_first, only_second, 40 - only_first - only_second]
                covered += stats.multinomial.pmf(counts, 40, [one, other, 1 - one - other])
    assert covered > 0.94


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holms_correction_is_bonferronis_over_every_set_of_comparisons(p_values: list[float]) -> None:
    """Closed testing (Marcus, Peritz and Gabriel, 1976): false are all sets with it that Bonferroni finds false."""
    numbers = range(len(p_values))
    expected = [
        max(
            min(1.0, size * min(p_values[other] for other in chosen))
            for size in range(1, len(p_values) + 1)
            for chosen in combinations(numbers, size)
            if number in chosen
        )
        for number in numbers
    ]
    assert holm(p_values) == pytest.approx(expected)


def power_of_groups(difference: float, sd: float, n: int) -> float:
    """Power of the test of two groups with equal spread, by the noncentral distribution."""
    limit, shift = stats.t.ppf(0.975, 2 * (n - 1)), difference / (sd * sqrt(2 / n))
    return float(stats.nct.sf(limit, 2 * (n - 1), shift))


@pytest.mark.parametrize("ratio", [0.2, 0.5, 1.0, 2.0])
def test_so_many_seeds_find_the_difference_four_times_of_five(ratio: float) -> None:
    number = seeds_of_each_group(ratio * 0.01, 0.01, 0.01)
    assert number is not None
    assert power_of_groups(ratio, 1.0, number) >= 0.79
    assert power_of_groups(ratio, 1.0, number - 2 if number < 20 else int(0.9 * number)) < 0.8


@pytest.mark.parametrize("ratio", [0.2, 0.5, 1.0])
def test_so_many_pairs_find_the_difference_four_times_of_five(ratio: float) -> None:
    number = pairs_of_seeds(ratio * 0.01, 0.01)
    assert number is not None
    shift = ratio * sqrt(number)
    assert stats.nct.sf(stats.t.ppf(0.975, number - 1), number - 1, shift) >= 0.79


def test_no_number_of_seeds_settles_what_is_equal() -> None:
    assert seeds_of_each_group(0.0, 0.01, 0.01) is None
    assert seeds_of_each_group(1e-9, 0.01, 0.01) is None
    assert pairs_of_seeds(0.0, 0.01) is None


def test_the_permutation_test_needs_six_pairs_however_large_the_difference() -> None:
    assert pairs_of_seeds(1.0, 0.01) == 6
    assert pairs_of_seeds(1.0, 0.01, 1 - 0.05 / 3) == 7
    assert pairs_of_seeds(1.0, 0.01, 1 - 0.05 / 528) == 15
    many = pairs_of_seeds(0.01, 0.01, 1 - 0.05 / 528)
    assert many is not None
    assert many > MOST_EXACT_PAIRS, "of which no number has so small a p-value"
    assert seeds_of_each_group(1.0, 0.0, 0.0) == 2


DIFFERENCES = st.lists(st.integers(-20, 20).map(lambda number: number / 100), min_size=1, max_size=8)


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
    assert (same.difference, same.p_value, same.interval) == (0.0, 1.0, None), "answers that agree show no noise"
