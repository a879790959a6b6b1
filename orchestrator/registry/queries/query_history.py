"""Fields of the query language that look into a measurement's history: `best(metrics.f1)`, `at(metrics.loss, 1000)`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, false, func, select

from orchestrator.measurements import is_better_lower
from orchestrator.registry.queries.query_fields import Column, Field, MetricField, compare_fields
from orchestrator.registry.queries.query_tree import Value
from orchestrator.registry.queries.query_values import WrongValueError, as_number, compare
from orchestrator.registry.tables import MetricPointRow, RunRow

FUNCTIONS = ("best", "worst", "min", "max", "first", "last", "at")
"""Functions of a measurement; `at` takes a step as well."""
_LARGEST_STEP = 2**63 - 1


@dataclass(frozen=True)
class HistoryField(Field):
    """Field that is one value of a measurement's history; a value that was NaN is none.

    Raises: WrongValueError when it is made, for a step that is none.
    """

    function: str
    """One of `FUNCTIONS`."""
    metric: MetricField
    step: float | None = None

    def __post_init__(self) -> None:
        if (self.function == "at") != (self.step is not None):
            raise WrongValueError("at takes a step, at(metrics.loss, 1000), and the other functions none")
        if self.step is not None and not (self.step.is_integer() and 0 <= self.step <= _LARGEST_STEP):
            raise WrongValueError(f"a step is a whole number from 0 on, and not {self.step:g}")

    def _value(self) -> Column:
        step = MetricPointRow.step
        if self.function in ("first", "last", "at"):
            points = self._points(MetricPointRow.value)
            if self.step is not None:
                points = points.where(step <= min(int(self.step), _LARGEST_STEP))
            order = step.asc() if self.function == "first" else step.desc()
            return points.order_by(order).limit(1).scalar_subquery()
        falls = is_better_lower(self.metric.name)
        takes_lowest = {"min": True, "max": False, "best": falls, "worst": not falls}[self.function]
        extreme = func.min if takes_lowest else func.max
        return self._points(extreme(MetricPointRow.value)).scalar_subquery()

    def _points(self, column: Any) -> Select[Any]:
        points = select(column).where(
            MetricPointRow.run_id == RunRow.id,
            MetricPointRow.split == self.metric.split,
            MetricPointRow.name == self.metric.name,
        )
        return points.correlate(RunRow)

    def present(self) -> ColumnElement[bool]:
        return self._value().is_not(None)

    def compared(self, operator: str, value: Value | Field) -> ColumnElement[bool]:
        if not isinstance(value, Value):
            return compare_fields(self, operator, value)
        if operator == "like":
            raise WrongValueError("like compares text, and a metric is a number")
        return func.coalesce(compare(self._value(), operator, as_number(value)), false())

    def scalars(self) -> Mapping[str, Column]:
        return {"number": self._value()}

    def sort_keys(self) -> tuple[Column, ...]:
        return (self._value(),)
