"""Axes: the value at a share, and bounds that cannot be. Run alone: pytest tests/orchestrator/search/test_axes.py"""

from collections.abc import Callable

import pytest

from orchestrator.search.axes import Axis, Choices, IntUniform, LogUniform, Uniform

ALMOST_ONE = 1 - 2.0**-53


def test_shares_spread_evenly_over_a_range() -> None:
    assert Uniform((1.0, 3.0)).value_at(0.25) == 1.5
    assert LogUniform((1e-4, 1e-2)).value_at(0.5) == pytest.approx(1e-3)


def test_both_bounds_of_whole_numbers_are_reached() -> None:
    assert [IntUniform((2, 4)).value_at(share) for share in (0.0, 0.5, ALMOST_ONE)] == [2, 3, 4]


def test_listed_values_have_equal_shares() -> None:
    axis = Choices(("a", "b"))
    assert [axis.value_at(share) for share in (0.0, 0.49, 0.5, ALMOST_ONE)] == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Uniform((2.0, 1.0)), "the lower bound 2 must be below the upper bound 1"),
        (lambda: IntUniform((2, 2)), "the lower bound 2 must be below the upper bound 2"),
        (lambda: LogUniform((2.0, 1.0)), "the lower bound 2 must be below the upper bound 1"),
        (lambda: LogUniform((0.0, 1.0)), "the lower bound 0 must be above 0 on a logarithmic scale"),
    ],
)
def test_bounds_that_enclose_nothing_are_refused(make: Callable[[], Axis], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()
