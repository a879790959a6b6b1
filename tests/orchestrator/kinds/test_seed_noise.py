"""Differences of groups beside the noise of seeds. Alone: pytest tests/orchestrator/kinds/test_seed_noise.py"""

import pytest
from scipy import stats

from orchestrator.kinds.seed_noise import compute_difference, compute_gain


def test_the_interval_is_welchs() -> None:
    first, second = [0.61, 0.66, 0.64], [0.55, 0.60]
    found = compute_difference(first, second)
    interval = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert found.half_width == pytest.approx((interval.high - interval.low) / 2, rel=1e-3)
    assert found.value == pytest.approx((interval.high + interval.low) / 2)


def test_a_gain_over_a_constant_has_students_interval() -> None:
    scores = [0.61, 0.66, 0.64]
    found = compute_gain(scores, 0.5)
    interval = stats.ttest_1samp(scores, 0.5).confidence_interval(0.95)
    assert found.half_width == pytest.approx((interval.high - interval.low) / 2, rel=1e-3)
    assert compute_gain([0.7], 0.5).is_more_than_noise is None
    assert compute_gain([0.7, 0.7], 0.5).is_more_than_noise is None


@pytest.mark.parametrize(
    ("first", "second", "is_more", "said"),
    [
        ([0.9, 0.91, 0.92], [0.5, 0.51, 0.52], True, "0.0227"),
        ([0.5, 0.7], [0.4, 0.6], False, "33 seeds"),
        ([0.7], [0.4, 0.6], None, "seeds=[0,1,2]"),
        ([0.7] * 3, [0.5] * 3, None, "3 seeds"),
    ],
)
def test_a_difference_is_told_beside_the_noise(
    first: list[float], second: list[float], is_more: bool | None, said: str
) -> None:
    found = compute_difference(first, second)
    assert found.is_more_than_noise is is_more
    assert said in found.words("seeds=[0,1,2]")
