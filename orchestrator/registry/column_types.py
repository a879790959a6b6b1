"""Column types and SQL functions that mean the same on SQLite and PostgreSQL."""

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    DateTime,
    Dialect,
    Double,
    Integer,
    Text,
    literal,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeDecorator

from orchestrator.run_states import RunState

_STATES = {str(state): state for state in RunState}
"""Looked up, a state takes a tenth of the time that calling the class takes."""


class UtcTime(TypeDecorator[datetime]):
    """Time in UTC: stored without a time zone, returned with one."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


def replace_unstorable(text: str) -> str:
    """Replace what PostgreSQL or UTF-8 cannot hold in `text`: NUL and lone surrogates become U+FFFD."""
    if text.isascii() and "\0" not in text:  # as nearly all is
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "surrogatepass").decode("utf-8", "replace")


class FreeText(TypeDecorator[str]):
    """Text from outside, such as a name, a path or an error message: any characters at all."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else replace_unstorable(value)


class StateText(TypeDecorator[RunState]):
    """A `RunState`, stored as its name. Any text can be compared with it, as queries do."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> RunState | None:
        return None if value is None else _STATES.get(value) or RunState(value)


class ReferenceKey(TypeDecorator[str]):
    """Reference to a row: its integer key in rows, a text to whoever writes and reads them.

    A text becomes a key where it is a parameter, and a key a text where it is what a statement returns; within a
    statement keys are compared with keys. A text that is not there has no key: NULL. A list of texts that may be empty,
    or that a column is not in, is given as a selection of keys (`dialects.select_runs`).
    """

    impl = Integer
    cache_ok = True
    key_of: type[FunctionElement[int]]
    text_of: type[FunctionElement[str]]

    def bind_expression(self, bindparam: BindParameter[str]) -> Any:
        return self.key_of(type_coerce(bindparam, Text))

    def column_expression(self, column: ColumnElement[str]) -> ColumnElement[str]:
        return self.text_of(column)


class Json(TypeDecorator[Any]):
    """Plain values, stored as JSON text so that both databases hold the same bytes."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        return json.dumps(value, default=str)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class utc_now(FunctionElement[datetime]):  # noqa: N801  (an SQL function)
    """SQL function: the database's clock, less `seconds_ago`. One clock serves drivers on different machines."""

    type = UtcTime()
    inherit_cache = True

    def __init__(self, seconds_ago: float = 0.0) -> None:
        super().__init__(*((literal(-float(seconds_ago)),) if seconds_ago else ()))


class _Found(FunctionElement[Any]):
    """SQL function: what a row of a table has in one column, found by another."""

    row: str
    """Column that is wanted, table, and column that is given."""


@compiles(_Found)
def _found(element: _Found, compiler: SQLCompiler, **options: Any) -> str:
    wanted, table, given = element.row.split()
    value = compiler.process(element.clauses, **options)
    return f"(SELECT referred.{wanted} FROM {table} AS referred WHERE referred.{given} = {value})"


class key_of_run(_Found):  # noqa: N801  (an SQL function)
    """SQL function: the key of the run with an id."""

    type, row, inherit_cache = Integer(), "key all_runs id", True


class id_of_run(_Found):  # noqa: N801  (an SQL function)
    """SQL function: the id of the run with a key."""

    type, row, inherit_cache = Text(), "id all_runs key", True


class key_of_name(_Found):  # noqa: N801  (an SQL function)
    """SQL function: the key of a name."""

    type, row, inherit_cache = Integer(), "key names text", True


class name_of_key(_Found):  # noqa: N801  (an SQL function)
    """SQL function: the name with a key."""

    type, row, inherit_cache = Text(), "text names key", True


class RunKey(ReferenceKey):
    """Reference to a run, by its id."""

    cache_ok = True
    key_of, text_of = key_of_run, id_of_run


class NameKey(ReferenceKey):
    """Reference to a name, by its text."""

    cache_ok = True
    key_of, text_of = key_of_name, name_of_key


class folded(FunctionElement[str]):  # noqa: N801  (an SQL function)
    """SQL function: a text in small letters, those of any alphabet; SQLite's own knows ASCII, PostgreSQL's a locale."""

    type = Text()
    inherit_cache = True


@compiles(folded, "sqlite")
def _sqlite_folded(element: folded, compiler: SQLCompiler, **options: Any) -> str:
    return f"folded({compiler.process(element.clauses, **options)})"  # `sqlite_engine` defines it


@compiles(folded, "postgresql")
def _postgresql_folded(element: folded, compiler: SQLCompiler, **options: Any) -> str:
    return f'lower(({compiler.process(element.clauses, **options)}) COLLATE "und-x-icu")'


class median(FunctionElement[float]):  # noqa: N801  (an SQL function)
    """SQL aggregate: the median of numbers."""

    type = Double()
    inherit_cache = True


@compiles(median, "sqlite")
def _sqlite_median(element: median, compiler: SQLCompiler, **options: Any) -> str:
    return f"median({compiler.process(element.clauses, **options)})"  # `sqlite_engine` defines it


@compiles(median, "postgresql")
def _postgresql_median(element: median, compiler: SQLCompiler, **options: Any) -> str:
    return f"percentile_cont(0.5) WITHIN GROUP (ORDER BY {compiler.process(element.clauses, **options)})"


@compiles(utc_now, "sqlite")
def _sqlite_now(element: utc_now, compiler: SQLCompiler, **options: Any) -> str:
    shift = compiler.process(element.clauses, **options)
    modifier = f", {shift} || ' seconds'" if shift else ""
    # SQLite counts milliseconds; SQLAlchemy reads six digits.
    return f"(strftime('%Y-%m-%d %H:%M:%f', 'now'{modifier}) || '000')"


@compiles(utc_now, "postgresql")
def _postgresql_now(element: utc_now, compiler: SQLCompiler, **options: Any) -> str:
    shift = compiler.process(element.clauses, **options)
    now = "(statement_timestamp() AT TIME ZONE 'UTC')"
    return f"({now} + make_interval(secs => {shift}))" if shift else now
