"""Aggregates of the values that a group of runs has, in the words of the query language: `mean`, `max(seconds)`."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from orchestrator.errors import InputError
from orchestrator.measurements import is_better_lower
from orchestrator.significance.summary import sample_variance

SCORE = "score"
"""Field that an aggregate is of where it names none."""
AGGREGATES = ("count", "n", "mean", "sd", "min", "max", "median", "sum", "best", "worst")
"""`count` is the number of runs, `n` of those whose value counts, `best` the highest one, of a loss the lowest."""
DEFAULT_AGGREGATES = ("count", "n", "mean", "sd", "min", "max")
_NUMBERS = {bool, int, float}


def _deviation(values: Sequence[float]) -> float | None:
    """Standard deviation of a sample; None of a single value, and where a value is infinite."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return math.sqrt(sample_variance(values))


_OF_NUMBERS: dict[str, Callable[[Sequence[float]], float | None]] = {
    "mean": fmean,
    "sd": _deviation,
    "median": lambda numbers: float(median(numbers)),
    "sum": math.fsum,
}
_MEASUREMENT = re.compile(r"metrics\.([\w./-]+)")


@dataclass(frozen=True)
class Aggregate:
    """One aggregate that was asked for."""

    label: str
    """Heading of its column: the words of the person who asked."""
    function: str
    """One of `AGGREGATES`."""
    field: str

    @classmethod
    def parse(cls, text: str) -> "Aggregate":
        """Make one of its text. Raises: InputError."""
        found = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*(.+?)\s*\))?\s*", text)
        function = found[1].lower() if found else text
        if found is None or function not in AGGREGATES:
            raise InputError(
                f"{text.strip()!r} is no aggregate; there are {', '.join(AGGREGATES)}, such as max(seconds)."
            )
        if function == "count" and found[2]:
            function = "n"
        label = text.strip() if found[2] is None else f"{found[1]}({found[2]})"
        return cls(label, function, found[2] or SCORE)

    @property
    def is_of_scores(self) -> bool:
        """Whether it aggregates the scores of the runs rather than their number or another field."""
        return self.field == SCORE and self.function != "count"

    def of(self, values: Sequence[Any], num_runs: int, metric: str | None) -> Any:
        """Aggregate of a group's values; None where there are too few. Raises: InputError for text.

        Args:
            metric: measurement that ranks the group's runs, which tells the better scores.
        """
        if self.function in ("count", "n"):
            return num_runs if self.function == "count" else len(values)
        if not values:
            return None
        of_numbers = _OF_NUMBERS.get(self.function)
        if of_numbers is not None:
            if not set(map(type, values)) <= _NUMBERS:
                raise InputError(
                    f"{self.function} takes numbers, and {self.field} has other values; count, min and max do"
                )
            return of_numbers(values)
        try:
            return min(values) if self._takes_lowest(metric) else max(values)
        except TypeError:  # numbers beside text have no order
            raise InputError(f"{self.function} takes values of one type, and {self.field} has several") from None

    def _takes_lowest(self, metric: str | None) -> bool:
        if self.function in ("min", "max"):
            return self.function == "min"
        measured = _MEASUREMENT.search(self.field)
        name = metric or "" if self.field == SCORE else measured[1] if measured else self.field
        return is_better_lower(name) == (self.function == "best")
