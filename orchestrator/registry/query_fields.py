"""Fields of the query language: each gives SQL conditions on runs, and SQL to sort runs by.

No text of a query becomes part of the SQL text: names and values are bound parameters, columns come from the lists
below.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Double, and_, cast, exists, false, func, not_, or_, select, true

from orchestrator.registry.filters import Value
from orchestrator.registry.tables import ExperimentRow, MetricRow, ParameterRow, RunRow, TagRow

METRIC_SPLITS = ("validation", "test", "train")
Column = ColumnElement[Any]
Test = Callable[[Column], ColumnElement[bool]]

TEXT_COLUMNS: dict[str, Any] = {
    "id": RunRow.id,
    "name": RunRow.name,
    "kind": RunRow.kind,
    "task": RunRow.task,
    "metric": RunRow.metric,
    "experiment": ExperimentRow.name,
    "parent": RunRow.parent_id,
    "group": RunRow.group_key,
    "error": RunRow.error,
}
NUMBER_COLUMNS: dict[str, Any] = {
    "seed": RunRow.seed,
    "number": RunRow.number,
    "attempt": RunRow.attempt,
    "seconds": RunRow.seconds,
}
TIME_COLUMNS: dict[str, Any] = {
    "created_at": RunRow.created_at,
    "started_at": RunRow.started_at,
    "finished_at": RunRow.finished_at,
}
_IS_TEXT = ParameterRow.kind.in_(("text", "json"))
NAMES = ("state", "tag", *TEXT_COLUMNS, *NUMBER_COLUMNS, *TIME_COLUMNS)


class WrongValueError(ValueError):
    """Error for a value or a comparison that does not fit a field; the message says what does."""


class Field(Protocol):
    """One field of a run: conditions on its value, and SQL to sort by it."""

    def present(self) -> ColumnElement[bool]:
        """Condition for runs that have a value."""

    def compared(self, operator: str, value: Value) -> ColumnElement[bool]:
        """Condition for runs whose value compares so with another. Raises: WrongValueError.

        Args:
            operator: one of = < <= > >= like
        """

    def sort_keys(self) -> tuple[Column, ...]:
        """Sort keys, one or two; runs without the first come last, sorted by the second."""


@dataclass(frozen=True)
class ColumnField(Field):
    """Field that is a column of the run itself."""

    column: Any
    kind: str
    """One of text, number, time and state; a query may write a state in lower case."""

    def present(self) -> ColumnElement[bool]:
        return self.column.is_not(None)  # type: ignore[no-any-return]

    def compared(self, operator: str, value: Value) -> ColumnElement[bool]:
        if self.kind == "state":
            return _compare(self.column, operator, _text(value).upper())
        if self.kind == "text":
            return and_(self.present(), _compare(self.column, operator, _text(value)))
        if operator == "like":
            raise WrongValueError(f"like compares text, and this is a {self.kind}")
        if self.kind == "number":
            return and_(self.present(), _compare(cast(self.column, Double), operator, _number(value)))
        return and_(self.present(), _compare(self.column, operator, _time(value)))

    def sort_keys(self) -> tuple[Column, ...]:
        return (self.column,)


@dataclass(frozen=True)
class MetricField(Field):
    """Field that is the latest value of a measurement."""

    split: str
    name: str

    def rows(self) -> ColumnElement[bool]:
        """Condition for the rows of this measurement, of any run."""
        return and_(MetricRow.split == self.split, MetricRow.name == self.name)

    def _runs(self, test: ColumnElement[bool]) -> ColumnElement[bool]:
        return exists().where(MetricRow.run_id == RunRow.id, self.rows(), test).correlate(RunRow)

    def present(self) -> ColumnElement[bool]:
        return self._runs(MetricRow.value.is_not(None))

    def compared(self, operator: str, value: Value) -> ColumnElement[bool]:
        if operator == "like":
            raise WrongValueError("like compares text, and a metric is a number")
        return self._runs(_compare(MetricRow.value, operator, _number(value)))

    def sort_keys(self) -> tuple[Column, ...]:
        values = select(MetricRow.value).where(MetricRow.run_id == RunRow.id, self.rows())
        return (values.correlate(RunRow).scalar_subquery(),)


@dataclass(frozen=True)
class ParameterField(Field):
    """Field that is a parameter, by its dotted path or its short name."""

    path: str

    def rows(self) -> ColumnElement[bool]:
        """Condition for the rows of this parameter, of any run."""
        if "." in self.path:
            return ParameterRow.path == self.path
        return ParameterRow.leaf == self.path

    def _runs(self, test: ColumnElement[bool]) -> ColumnElement[bool]:
        return exists().where(ParameterRow.run_id == RunRow.id, self.rows(), test).correlate(RunRow)

    def present(self) -> ColumnElement[bool]:
        return self._runs(ParameterRow.kind != "null")

    def compared(self, operator: str, value: Value) -> ColumnElement[bool]:
        if isinstance(value, bool):
            if operator != "=":
                raise WrongValueError("true and false can be compared with = and != only")
            return self._runs(and_(ParameterRow.kind == "boolean", ParameterRow.number == float(value)))
        if isinstance(value, float):
            return self._runs(and_(ParameterRow.kind == "number", _compare(ParameterRow.number, operator, value)))
        return self._runs(and_(_IS_TEXT, _compare(ParameterRow.text, operator, _text(value))))

    def sort_keys(self) -> tuple[Column, ...]:
        numbers = select(ParameterRow.number).where(ParameterRow.run_id == RunRow.id, self.rows())
        texts = select(ParameterRow.text).where(ParameterRow.run_id == RunRow.id, self.rows(), _IS_TEXT)
        return tuple(values.correlate(RunRow).scalar_subquery() for values in (numbers, texts))


@dataclass(frozen=True)
class TagField(Field):
    """Field that is any of the tags of a run."""

    def _runs(self, test: ColumnElement[bool]) -> ColumnElement[bool]:
        return exists().where(TagRow.run_id == RunRow.id, test).correlate(RunRow)

    def present(self) -> ColumnElement[bool]:
        return self._runs(true())

    def compared(self, operator: str, value: Value) -> ColumnElement[bool]:
        return self._runs(_compare(TagRow.tag, operator, _text(value)))

    def sort_keys(self) -> tuple[Column, ...]:
        tags = select(func.min(TagRow.tag)).where(TagRow.run_id == RunRow.id)
        return (tags.correlate(RunRow).scalar_subquery(),)


def condition(field: Field, operator: str, values: tuple[Value, ...]) -> ColumnElement[bool]:
    """Condition for runs of which `field operator values` is true. Raises: WrongValueError."""
    if operator == "in":
        return or_(false(), *(condition(field, "=", (value,)) for value in values))
    value = values[0]
    if value is None:
        if operator not in ("=", "!="):
            raise WrongValueError("null can be compared with = and != only")
        return not_(field.present()) if operator == "=" else field.present()
    if operator == "!=":
        return and_(field.present(), not_(field.compared("=", value)))
    return field.compared(operator, value)


def _compare(column: Any, operator: str, value: Any) -> ColumnElement[bool]:
    tests: dict[str, Callable[[], ColumnElement[bool]]] = {
        "=": lambda: column == value,
        "<": lambda: column < value,
        "<=": lambda: column <= value,
        ">": lambda: column > value,
        ">=": lambda: column >= value,
        # A backslash is a backslash: neither database's own escaping shows.
        "like": lambda: column.ilike(value.replace("\\", "\\\\"), escape="\\"),
    }
    return tests[operator]()


def _number(value: Value) -> float:
    if isinstance(value, bool) or not isinstance(value, float):
        raise WrongValueError("this is a number; compare it with one, without quotes")
    return value


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise WrongValueError("this is text; compare it with text in quotes")
    return value


def _time(value: Value) -> datetime:
    try:
        time = datetime.fromisoformat(_text(value))
    except ValueError:
        raise WrongValueError(
            "this is a time; compare it with one like '2026-11-20' or '2026-11-20T10:45' (UTC)"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
