"""Axes, what every search keeps to, and each one's own. Alone: pytest tests/orchestrator/specs/test_algorithms.py"""

from collections.abc import Callable, Sequence
from itertools import islice
from math import log10
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import qmc

from orchestrator.specs.search_algorithms import (
    SEARCHES,
    DrawnSearch,
    GridSearch,
    HaltonSearch,
    OptunaSearch,
    RandomSearch,
    Search,
)
from orchestrator.specs.search_axes import Axis, Choices, IntUniform, LogUniform, Point, Space, Uniform

LISTED: Space = {"size": Choices(("tiny", "mini", "small")), "epochs": Choices((1.0, 2.0))}
RANGES: Space = {
    **LISTED,
    "learning_rate": LogUniform((1e-5, 1e-2)),
    "warmup_ratio": Uniform((0.0, 0.5)),
    "batch_size": IntUniform((4, 64)),
}

every_search = pytest.mark.parametrize("kind", SEARCHES.values(), ids=SEARCHES)


def space_for(kind: type[Search]) -> Space:
    return RANGES if kind.accepts_ranges else LISTED


def begin(kind: type[Search], max_points: int = 5, seed: int = 0, proposed: Sequence[Point] = ()) -> Search:
    return kind(space_for(kind), max_points=max_points, seed=seed, proposed=proposed)


def run(search: Search, score: Callable[[Point], float | None] | None = None, most: int = 99) -> list[Point]:
    """The first so many points, each told a score before the next is asked for."""
    points = []
    for number, point in enumerate(islice(search.propose(), most)):
        points.append(point)
        search.tell(number, number / 10 if score is None else score(point))
    return points


def holds(axis: Axis, value: object) -> bool:
    assert isinstance(value, type(axis.written[0]))
    return value in axis.listed if axis.listed is not None else axis.written[0] <= value <= axis.written[1]  # type: ignore[operator]


@every_search
def test_points_are_different_and_lie_on_every_axis(kind: type[Search]) -> None:
    points = run(begin(kind))
    assert len(points) == len({tuple(point.items()) for point in points}) == begin(kind).num_points == 5
    for point in points:
        assert list(point) == list(space_for(kind))
        assert all(holds(axis, point[name]) for name, axis in space_for(kind).items())


@every_search
def test_search_ends_when_the_space_is_used_up(kind: type[Search]) -> None:
    points = run(kind(LISTED, max_points=50, seed=0))
    assert sorted(tuple(point.values()) for point in points) == sorted(
        (size, epochs) for size in ("tiny", "mini", "small") for epochs in (1.0, 2.0)
    )


@every_search
def test_empty_space_is_one_point(kind: type[Search]) -> None:
    assert run(kind({}, max_points=3, seed=0)) == [{}]


@every_search
def test_number_of_points_is_a_bound_and_exact_without_learning(kind: type[Search]) -> None:
    search = kind(LISTED, max_points=50, seed=0)
    assert search.num_points == (50 if kind.learns else len(run(search)))


@every_search
def test_failed_points_do_not_end_a_search(kind: type[Search]) -> None:
    assert len(run(begin(kind), lambda point: None)) == 5


@every_search
def test_interrupted_search_proposes_its_first_points_again(kind: type[Search]) -> None:
    before = run(begin(kind), most=3)
    after = run(begin(kind, proposed=before if kind.learns else ()))
    assert after[:3] == before
    assert len(after) == 5


def test_cap_keeps_the_first_combinations() -> None:
    search = GridSearch({"learning_rate": Choices((1e-4, 1e-3, 1e-2))}, max_points=2, seed=0)
    assert list(search.propose()) == [{"learning_rate": 1e-4}, {"learning_rate": 1e-3}]
    assert search.num_points == 2


ALMOST_ONE = 1 - 2.0**-53


@pytest.mark.parametrize(
    ("axis", "shares", "expected"),
    [
        (Uniform((1.0, 3.0)), (0.25,), [1.5]),
        (LogUniform((1e-4, 1e-2)), (0.5,), [pytest.approx(1e-3)]),
        (IntUniform((2, 4)), (0.0, 0.5, ALMOST_ONE), [2, 3, 4]),
        (Choices(("a", "b")), (0.0, 0.49, 0.5, ALMOST_ONE), ["a", "a", "b", "b"]),
    ],
)
def test_shares_spread_evenly_over_an_axis(axis: Axis, shares: tuple[float, ...], expected: list[object]) -> None:
    assert [axis.value_at(share) for share in shares] == expected


@pytest.mark.parametrize(
    ("make", "bounds", "named"),
    [
        (Uniform, (2.0, 1.0), "lower bound 2 .* upper bound 1"),
        (IntUniform, (2, 2), "lower bound 2 .* upper bound 2"),
        (LogUniform, (2.0, 1.0), "lower bound 2 .* upper bound 1"),
        (LogUniform, (0.0, 1.0), "lower bound 0 .* above 0"),
    ],
)
def test_bounds_that_enclose_nothing_are_refused(
    make: Callable[..., Axis], bounds: tuple[Any, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        make(bounds)


SPACE: Space = {"learning_rate": LogUniform((1e-5, 1e-3)), "epochs": Choices((1.0, 2.0))}


def points(space: Space = SPACE, max_points: int = 5, seed: int = 0) -> list[Point]:
    return list(RandomSearch(space, max_points=max_points, seed=seed).propose())


def test_more_points_only_add_to_fewer() -> None:
    assert points(max_points=8)[:3] == points(max_points=3)


def test_draws_of_an_axis_do_not_depend_on_the_other_axes() -> None:
    wider = {"warmup_ratio": Uniform((0.0, 0.5)), **SPACE}
    assert [{name: point[name] for name in SPACE} for point in points(wider)] == points()


def test_values_that_only_differ_in_their_type_are_different_points() -> None:
    assert len(points({"frozen": Choices((1, 1.0, True))}, max_points=10)) == 3


def cube(num_axes: int) -> Space:
    return {f"axis_{number}": Uniform((0.0, 1.0)) for number in range(num_axes)}


def shares(kind: type[DrawnSearch], num_points: int, num_axes: int, seed: int) -> NDArray[np.float64]:
    """(points, axes)"""
    points = kind(cube(num_axes), max_points=num_points, seed=seed).propose()
    return np.array([list(point.values()) for point in points])


def test_discrepancy_is_that_of_scipys_sequence() -> None:
    ours = np.mean([qmc.discrepancy(shares(HaltonSearch, 64, 4, seed)) for seed in range(10)])
    theirs = np.mean([qmc.discrepancy(qmc.Halton(4, rng=seed).random(64)) for seed in range(10)])
    assert ours == pytest.approx(theirs, rel=0.1)


@pytest.mark.parametrize(("axis", "base", "power"), [(0, 2, 5), (1, 3, 3), (2, 5, 2), (5, 13, 1)])
def test_each_stratum_of_an_axis_gets_one_of_as_many_points(axis: int, base: int, power: int) -> None:
    num_strata = base**power
    column = shares(HaltonSearch, num_strata, 6, seed=3)[:, axis]
    assert sorted(np.floor(column * num_strata).astype(int)) == list(range(num_strata))


def test_shares_stay_below_one_however_far_the_sequence_goes() -> None:
    search = HaltonSearch(cube(10), max_points=1, seed=0)
    assert all(0 <= search.share(name, draw) < 1 for name in cube(10) for draw in (0, 10**6, 2**60, 3**40))


def test_listed_values_are_tried_equally_often() -> None:
    space: Space = {**cube(1), "size": Choices(("tiny", "mini", "small"))}
    sizes = [point["size"] for point in HaltonSearch(space, max_points=27, seed=0).propose()]
    assert [sizes.count(size) for size in ("tiny", "mini", "small")] == [9, 9, 9]


WIDE: Space = {"learning_rate": LogUniform((1e-6, 1e-1)), "size": Choices(("tiny", "mini"))}


def closeness(point: Point) -> float:
    """Highest at mini with a learning rate of 1e-3."""
    return 1 - abs(log10(float(point["learning_rate"])) + 3) / 3 - (point["size"] == "tiny") * 0.5


def mean(points: list[Point]) -> float:
    return sum(map(closeness, points)) / len(points)


def test_points_of_an_earlier_attempt_are_learned_from_again() -> None:
    before = run(OptunaSearch(WIDE, max_points=20, seed=0), closeness)
    after = run(OptunaSearch(WIDE, max_points=30, seed=0, proposed=before), closeness)
    assert after[:20] == before
    assert mean(after[20:]) > mean(before[:10]) + 0.2


@every_search
def test_next_point_does_not_wait_for_scores(kind: type[Search]) -> None:
    assert len(list(begin(kind).propose())) == 5
