"""Quasi-random search: even cover, strata, seeds. Run alone: pytest tests/orchestrator/search/test_halton.py"""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import qmc

from orchestrator.search.algorithms import DrawnSearch, HaltonSearch, RandomSearch
from orchestrator.search.axes import Choices, Space, Uniform


def cube(num_axes: int) -> Space:
    return {f"axis_{number}": Uniform((0.0, 1.0)) for number in range(num_axes)}


def shares(kind: type[DrawnSearch], num_points: int, num_axes: int, seed: int) -> NDArray[np.float64]:
    """(points, axes)"""
    points = kind(cube(num_axes), max_points=num_points, seed=seed).propose()
    return np.array([list(point.values()) for point in points])


@pytest.mark.parametrize(("num_points", "num_axes"), [(16, 2), (24, 3), (64, 6)])
def test_points_cover_a_space_more_evenly_than_random_ones(num_points: int, num_axes: int) -> None:
    halton, random = (
        [qmc.discrepancy(shares(kind, num_points, num_axes, seed)) for seed in range(10)]
        for kind in (HaltonSearch, RandomSearch)
    )
    assert max(halton) < min(random)
    assert np.mean(halton) < np.mean(random) / 3


def test_discrepancy_is_that_of_scipys_sequence() -> None:
    ours = np.mean([qmc.discrepancy(shares(HaltonSearch, 64, 4, seed)) for seed in range(10)])
    theirs = np.mean([qmc.discrepancy(qmc.Halton(4, rng=seed).random(64)) for seed in range(10)])
    assert ours == pytest.approx(theirs, rel=0.1)


@pytest.mark.parametrize(("axis", "base", "power"), [(0, 2, 5), (1, 3, 3), (2, 5, 2), (5, 13, 1)])
def test_each_stratum_of_an_axis_gets_one_of_as_many_points(axis: int, base: int, power: int) -> None:
    num_strata = base**power
    column = shares(HaltonSearch, num_strata, 6, seed=3)[:, axis]
    assert sorted(np.floor(column * num_strata).astype(int)) == list(range(num_strata))


def test_points_are_decided_by_the_seed() -> None:
    first, again, other = (shares(HaltonSearch, 8, 3, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.isclose(first, other).any()


def test_more_points_only_add_to_fewer() -> None:
    assert np.array_equal(shares(HaltonSearch, 20, 3, seed=0)[:7], shares(HaltonSearch, 7, 3, seed=0))


def test_shares_stay_below_one_however_far_the_sequence_goes() -> None:
    search = HaltonSearch(cube(10), max_points=1, seed=0)
    assert all(0 <= search.share(name, draw) < 1 for name in cube(10) for draw in (0, 10**6, 2**60, 3**40))


def test_listed_values_are_tried_equally_often() -> None:
    space: Space = {**cube(1), "size": Choices(("tiny", "mini", "small"))}
    sizes = [point["size"] for point in HaltonSearch(space, max_points=27, seed=0).propose()]
    assert [sizes.count(size) for size in ("tiny", "mini", "small")] == [9, 9, 9]
