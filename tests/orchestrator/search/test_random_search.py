"""Random search. Run alone: pytest tests/orchestrator/search/test_random_search.py"""

from orchestrator.search.algorithms import RandomSearch
from orchestrator.search.axes import Choices, LogUniform, Point, Space, Uniform

SPACE: Space = {"learning_rate": LogUniform((1e-5, 1e-3)), "epochs": Choices((1.0, 2.0))}


def points(space: Space = SPACE, max_points: int = 5, seed: int = 0) -> list[Point]:
    return list(RandomSearch(space, max_points=max_points, seed=seed).propose())


def test_another_seed_gives_other_points() -> None:
    assert points() != points(seed=1)


def test_more_points_only_add_to_fewer() -> None:
    assert points(max_points=8)[:3] == points(max_points=3)


def test_draws_of_an_axis_do_not_depend_on_the_other_axes() -> None:
    wider = {"warmup_ratio": Uniform((0.0, 0.5)), **SPACE}
    assert [{name: point[name] for name in SPACE} for point in points(wider)] == points()


def test_values_that_only_differ_in_their_type_are_different_points() -> None:
    assert len(points({"frozen": Choices((1, 1.0, True))}, max_points=10)) == 3
