"""The common part of searches that draw points by number: the n-th draw depends on n, never on a score."""

import json
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property

from orchestrator.search.axes import Point
from orchestrator.search.base import Search

_DRAWS_PER_POINT = 100
"""Draws for each point after which the search gives up on finding another new one: the space is used up."""


class DrawnSearch(Search):
    """`max_points` different points, or all where the space has fewer; a subclass says which shares a draw has.

    More points only add to fewer: the first n are the same for every `max_points`.
    """

    @abstractmethod
    def share(self, name: str, draw: int) -> float:
        """Place of a draw on the axis of that name: a number in [0, 1), decided by the seed."""

    @cached_property
    def num_points(self) -> int:
        return sum(1 for _ in self.propose())

    def propose(self) -> Iterator[Point]:
        assert self._max_points is not None
        seen: set[str] = set()
        for draw in range(self._max_points * _DRAWS_PER_POINT):
            point = {name: axis.value_at(self.share(name, draw)) for name, axis in self._space.items()}
            text = json.dumps(point)  # tells 1, 1.0 and true apart
            if text not in seen:
                seen.add(text)
                yield point
            if len(seen) == self._max_points:
                return
