"""McNemar's test, Holm's correction and numbers of seeds.

Alone: pytest tests/orchestrator/significance/test_comparison.py
"""

from itertools import combinations
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.significance.comparison import (
    MOST_EXACT_PAIRS,
    compare_answers,
    holm,
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
