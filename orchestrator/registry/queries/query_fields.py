"""Fields of the query language: each gives SQL conditions on runs, and SQL to sort runs by.

No text of a query becomes part of the SQL text: names and values are bound parameters, columns come from the lists
below.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Double, Text, and_, cast, exists, false, func, or_, select, type_coerce

from orchestrator.registry.parameter_values import KIND_END
from orchestrator.registry.queries.query_tree import Age, Value
from orchestrator.registry.queries.query_values import (
    WrongValueError,
    as_number,
    as_seconds,
    as_text,
    as_whole_number,
    compare,
    compare_time,
)
from orchestrator.registry.run_flags import Flag
from orchestrator.registry.tables import MetricRow, ParameterRow, RunRow, of_whole_run
from orchestrator.run_states import RunState

METRIC_SPLITS = ("validation", "test", "train")
Column = ColumnElement[Any]

COLUMNS: dict[str, tuple[str, Any]] = {
    "state": ("state", None),  # the state as it is read, which depends on the registry's patience
    "id": ("text", RunRow.id),
    "name": ("text", RunRow.name),
    "kind": ("text", RunRow.kind),
    "task": ("text", RunRow.task),
    "metric": ("text", RunRow.metric),
    "experiment": ("text", of_whole_run("name")),
    "fingerprint": ("text", of_whole_run("fingerprint")),
    "parent": ("text", RunRow.parent_id),
    "group": ("text", RunRow.group_key),
    "host": ("text", RunRow.host),
    "code": ("text", RunRow.code_version),
    "error": ("text", RunRow.error),
    "seed": ("whole number", RunRow.seed),
    "number": ("whole number", RunRow.number),
    "attempt": ("whole number", RunRow.attempt),
    "seconds": ("seconds", RunRow.seconds),
    "created_at": ("time", RunRow.created_at),
    "started_at": ("time", RunRow.started_at),
    "finished_at": ("time", RunRow.finished_at),
}
"""Kind of each field that is a column of the run, and the column."""
SEVERAL = ("tag", "model", "dataset", "note")
"""Fields of which a run may have several (`query_links`)."""
FLAGS: tuple[Flag, ...] = ("archived", "pinned")
"""Fields that are true or false of every run (`query_flags`)."""
NAMES = (*COLUMNS, "score", "commit", *SEVERAL, *FLAGS)
_IS_TEXT = ParameterRow.kind.in_(("text", "json"))


class Field(Protocol):
    """One field of a run: conditions on its value, and SQL to sort by it."""

    def present(self) -> ColumnElement[bool]:
        """Condition for runs that have a value."""

    def compared(self, operator: str, value: "Value | Field") -> ColumnElement[bool]:
        """Condition for runs whose value compares so with another; true or false, never NULL. Raises: WrongValueError.

        Args:
            operator: one of = < <= > >= like
            value: a value, or the field whose value in the same run it is compared with.
        """

    def scalars(self) -> Mapping[str, Column]:
        """The value as SQL by its kind: number, text, boolean or time; NULL in runs without such a value.

        Empty for a field of which a run may have several values.
        """

    def sort_keys(self) -> tuple[Column, ...]:
        """Sort keys, one or two; runs without the first come last, sorted by the second."""


@dataclass(frozen=True)
class ColumnField(Field):
    """Field that is a column of the run itself."""

    column: Any
    kind: str
    """One of text, whole number, seconds, time and state; a query may write a state in lower case."""

    def present(self) -> ColumnElement[bool]:
        return self.column.is_not(None)  # type: ignore[no-any-return]

    def compared(self, operator: str, value: "Value | Field") -> ColumnElement[bool]:
        if not isinstance(value, Value):
            return compare_fields(self, operator, value)
        if self.kind == "state":
            return compare(self.column, operator, _state(operator, value))
        if self.kind == "text":
            return and_(self.present(), compare(self.column, operator, as_text(value)))
        if operator == "like":
            raise WrongValueError(f"like compares text, and this is a {self.kind}")
        if self.kind == "time":
            return and_(self.present(), compare_time(self.column, operator, value))
        if self.kind == "seconds":
            number = as_seconds(value)
        else:
            number = as_whole_number(value) if operator == "=" else as_number(value)
        return and_(self.present(), compare(cast(self.column, Double), operator, number))

    def scalars(self) -> Mapping[str, Column]:
        if self.kind in ("text", "state"):
            return {"text": type_coerce(self.column, Text)}
        return {"time": self.column} if self.kind == "time" else {"number": cast(self.column, Double)}

    def sort_keys(self) -> tuple[Column, ...]:
        return (self.column,)


@dataclass(frozen=True)
class KindField(ColumnField):
    """Field that is the kind of a run, which a query may write in capitals, too."""

    def compared(self, operator: str, value: "Value | Field") -> ColumnElement[bool]:
        if operator == "=" and isinstance(value, str):
            return and_(self.present(), func.lower(self.column) == as_text(value).lower())
        return super().compared(operator, value)


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

    def compared(self, operator: str, value: "Value | Field") -> ColumnElement[bool]:
        if not isinstance(value, Value):
            return compare_fields(self, operator, value)
        if operator == "like":
            raise WrongValueError("like compares text, and a metric is a number")
        return self._runs(compare(MetricRow.value, operator, as_number(value)))

    def scalars(self) -> Mapping[str, Column]:
        return {"number": self.sort_keys()[0]}

    def sort_keys(self) -> tuple[Column, ...]:
        values = select(MetricRow.value).where(MetricRow.run_id == RunRow.id, self.rows())
        return (values.correlate(RunRow).scalar_subquery(),)


@dataclass(frozen=True)
class ScoreField(MetricField):
    """Field that is a run's score: the latest value of the measurement that ranks the runs of its task."""

    split: str = "validation"
    name: str = "score"

    def rows(self) -> ColumnElement[bool]:
        """Condition for the rows of the measurement that is a run's own, beside that run."""
        return and_(MetricRow.split == self.split, MetricRow.name == RunRow.metric)


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

    def compared(self, operator: str, value: "Value | Field") -> ColumnElement[bool]:
        if not isinstance(value, Value):
            return compare_fields(self, operator, value)
        if isinstance(value, Age):
            raise WrongValueError("an age is compared with a time or with seconds only")
        if isinstance(value, bool):
            if operator != "=":
                raise WrongValueError("true and false can be compared with = and != only")
            return self._runs(and_(ParameterRow.kind == "boolean", ParameterRow.number == float(value)))
        if isinstance(value, float):
            return self._runs(and_(ParameterRow.kind == "number", compare(ParameterRow.number, operator, value)))
        return self._runs(and_(_IS_TEXT, compare(ParameterRow.text, operator, as_text(value))))

    def scalars(self) -> Mapping[str, Column]:
        return {
            "number": self._scalar(ParameterRow.number, ParameterRow.kind == "number"),
            "text": self._scalar(ParameterRow.text, _IS_TEXT),
            "boolean": self._scalar(ParameterRow.number, ParameterRow.kind == "boolean"),
        }

    def stored(self) -> Column:
        """The value as it is stored, its kind and its text in one, which `decode_stored` reads."""
        return self._scalar(ParameterRow.kind + KIND_END + ParameterRow.text, ParameterRow.kind != "null")

    def sort_keys(self) -> tuple[Column, ...]:
        numbers = select(ParameterRow.number).where(ParameterRow.run_id == RunRow.id, self.rows())
        return numbers.correlate(RunRow).scalar_subquery(), self._scalar(ParameterRow.text, _IS_TEXT)

    def _scalar(self, column: Any, test: ColumnElement[bool]) -> Column:
        values = select(column).where(ParameterRow.run_id == RunRow.id, self.rows(), test)
        return values.correlate(RunRow).scalar_subquery()


def compare_fields(left: Field, operator: str, right: Field) -> ColumnElement[bool]:
    """Condition for runs whose two fields compare so; false in a run that lacks one. Raises: WrongValueError."""
    mine, theirs = left.scalars(), right.scalars()
    if not mine or not theirs:
        raise WrongValueError("a run may have several tags, models, datasets and notes; compare them with one value")
    common = [kind for kind in mine if kind in theirs and (kind != "boolean" or operator == "=")]
    if not common:
        raise WrongValueError(f"{' or '.join(mine)} cannot be compared with {' or '.join(theirs)}")
    tests = [func.coalesce(compare(mine[kind], operator, theirs[kind]), false()) for kind in common]
    return or_(*tests)


def _state(operator: str, value: Value) -> str:
    if operator not in ("=", "like"):
        raise WrongValueError("states have no order; compare them with = != in and like")
    state = as_text(value).upper()
    if operator == "=" and state not in list(RunState):
        raise WrongValueError(f"no run is ever {value!r}; a state is {', '.join(map(repr, map(str.lower, RunState)))}")
    return state
