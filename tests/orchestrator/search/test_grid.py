"""Grid search. Run alone: pytest tests/orchestrator/search/test_grid.py"""

from orchestrator.search.algorithms import GridSearch
from orchestrator.search.axes import Choices, Point, Scalar


def grid(max_points: int | None = None, **listed: tuple[Scalar, ...]) -> GridSearch:
    return GridSearch({name: Choices(values) for name, values in listed.items()}, max_points=max_points, seed=0)


def values(search: GridSearch) -> list[tuple[Scalar, ...]]:
    points: list[Point] = list(search.propose())
    return [tuple(point.values()) for point in points]


def test_grid_walks_all_combinations_last_axis_fastest() -> None:
    assert values(grid(learning_rate=(1e-4, 1e-3), batch_size=(8, 16))) == [
        (1e-4, 8),
        (1e-4, 16),
        (1e-3, 8),
        (1e-3, 16),
    ]


def test_cap_keeps_the_first_combinations() -> None:
    search = grid(2, learning_rate=(1e-4, 1e-3, 1e-2))
    assert values(search) == [(1e-4,), (1e-3,)]
    assert search.num_points == 2


def test_cap_above_the_number_of_combinations_changes_nothing() -> None:
    assert grid(9, learning_rate=(1e-4, 1e-3)).num_points == 2


def test_value_listed_twice_is_tried_once() -> None:
    search = grid(learning_rate=(1e-4, 1e-3, 1e-4))
    assert values(search) == [(1e-4,), (1e-3,)]
    assert search.num_points == 2
