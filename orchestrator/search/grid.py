"""Grid search: every combination of the listed values."""

from collections.abc import Iterator
from itertools import islice, product
from math import prod

from orchestrator.search.axes import Point, Scalar
from orchestrator.search.base import Search


class GridSearch(Search):
    """Every combination of the listed values, the last axis running fastest; the first `max_points` where given."""

    needs_max_points = False
    accepts_ranges = False

    @property
    def num_points(self) -> int:
        num_combinations = prod(len(values) for values in self._values())
        return num_combinations if self._max_points is None else min(num_combinations, self._max_points)

    def propose(self) -> Iterator[Point]:
        for combination in islice(product(*self._values()), self._max_points):
            yield dict(zip(self._space, combination, strict=True))

    def _values(self) -> list[tuple[Scalar, ...]]:
        """The different values of each axis."""
        listed = [axis.listed for axis in self._space.values()]
        assert None not in listed, "the spec refuses ranges in a grid"
        return [tuple(dict.fromkeys(values or ())) for values in listed]
