"""What every search algorithm keeps to. Run alone: pytest tests/orchestrator/search/test_contract.py"""

from collections.abc import Sequence
from itertools import islice

import pytest

from orchestrator.search.algorithms import SEARCHES, Search
from orchestrator.search.axes import Axis, Choices, IntUniform, LogUniform, Point, Space, Uniform

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


def run(search: Search) -> list[Point]:
    """All points, each told a score before the next is asked for."""
    points = []
    for number, point in enumerate(search.propose()):
        points.append(point)
        search.tell(number, number / 10)
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
def test_points_repeat_with_their_seed(kind: type[Search]) -> None:
    assert run(begin(kind)) == run(begin(kind))


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
def test_next_point_does_not_wait_for_scores(kind: type[Search]) -> None:
    assert len(list(begin(kind).propose())) == 5


@every_search
def test_failed_points_do_not_end_a_search(kind: type[Search]) -> None:
    search = begin(kind)
    points = []
    for number, point in enumerate(search.propose()):
        points.append(point)
        search.tell(number, None)
    assert len(points) == 5


@every_search
def test_interrupted_search_proposes_its_first_points_again(kind: type[Search]) -> None:
    search = begin(kind)
    before = []
    for number, point in enumerate(islice(search.propose(), 3)):
        before.append(point)
        search.tell(number, number / 10)
    after = run(begin(kind, proposed=before if kind.learns else ()))
    assert after[:3] == before
    assert len(after) == 5
