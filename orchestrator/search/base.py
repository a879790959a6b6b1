"""The contract of a search algorithm: it proposes the points of a space in order, and may learn from their scores.

Points are numbered from 0 in the order of proposal. A search knows nothing of seeds, trials or Ray: the queue of trials
tries each point with every seed, and tells the search the mean of their scores.

A search is made again when an interrupted sweep goes on. Its first points must then be those of the earlier attempt,
under the same numbers. A search that does not learn proposes them anyway; one that learns is given what it proposed.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

from orchestrator.search.axes import Point, Space


class Search(ABC):
    """One search algorithm at work on one space; the class says what the algorithm asks of a spec.

    Args:
        space: the axes, in the order of the spec; may be empty, which is a space of one point.
        max_points: propose no more points than this; None for all, where the algorithm does not need a number.
        seed: decides everything that is drawn at random.
        proposed: the points of an earlier attempt, in order; they come first. Empty for a search that does not learn.
    """

    needs_max_points: ClassVar[bool] = True
    """Whether the number of points must be given: the algorithm has no end of its own."""
    accepts_ranges: ClassVar[bool] = True
    """Whether an axis may be a range; otherwise each lists its values."""
    learns: ClassVar[bool] = False
    """Whether proposals depend on scores: only then must they be saved for a later attempt."""

    def __init__(self, space: Space, *, max_points: int | None, seed: int, proposed: Sequence[Point] = ()) -> None:
        assert max_points is not None or not self.needs_max_points, "the spec asks for `trials` here"
        self._space = space
        self._max_points = max_points
        self._seed = seed
        self._proposed = proposed

    @property
    @abstractmethod
    def num_points(self) -> int:
        """Largest number of points, those of an earlier attempt included; exact unless the search learns."""

    @abstractmethod
    def propose(self) -> Iterator[Point]:
        """Different points in order, each made when it is asked for, from the scores told by then; called once.

        The iterator ends after `max_points`, or when the space is used up.
        """

    def tell(self, number: int, score: float | None) -> None:  # noqa: B027 - what does not learn has nothing to do
        """Take in the score of a proposed point, higher being better; None when all its trials failed.

        Points end in any order; some never do, when an interrupted sweep is not continued.
        """
