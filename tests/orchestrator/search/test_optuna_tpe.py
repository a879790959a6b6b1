"""Optuna's search. Run alone: pytest tests/orchestrator/search/test_optuna_tpe.py"""

from math import log10

from orchestrator.search.algorithms import OptunaSearch
from orchestrator.search.axes import Choices, LogUniform, Point, Space

SPACE: Space = {"learning_rate": LogUniform((1e-6, 1e-1)), "size": Choices(("tiny", "mini"))}


def closeness(point: Point) -> float:
    """Highest at mini with a learning rate of 1e-3."""
    return 1 - abs(log10(float(point["learning_rate"])) + 3) / 3 - (point["size"] == "tiny") * 0.5


def run(search: OptunaSearch) -> tuple[list[Point], list[float]]:
    points, scores = [], []
    for number, point in enumerate(search.propose()):
        points.append(point)
        scores.append(closeness(point))
        search.tell(number, scores[-1])
    return points, scores


def mean(scores: list[float]) -> float:
    return sum(scores) / len(scores)


def test_points_move_towards_good_scores() -> None:
    _, scores = run(OptunaSearch(SPACE, max_points=30, seed=0))
    assert mean(scores[20:]) > mean(scores[:10]) + 0.2


def test_points_of_an_earlier_attempt_are_learned_from_again() -> None:
    points, before = run(OptunaSearch(SPACE, max_points=20, seed=0))
    _, after = run(OptunaSearch(SPACE, max_points=30, seed=0, proposed=points))
    assert after[:20] == before
    assert mean(after[20:]) > mean(before[:10]) + 0.2
