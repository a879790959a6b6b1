"""Column types, functions and statements that SQLite and PostgreSQL write differently."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from typing import Any

import sqlalchemy as sql
from sqlalchemy import ColumnElement, Connection, Dialect, Insert, Row, Select, Table, literal_column, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import JSON, Boolean, DateTime, Double, Integer, Text, TypeDecorator

from orchestrator.base.run_states import RunState


class UtcTime(TypeDecorator[datetime]):
    """Time in UTC: stored without a time zone, returned with one."""

    impl, cache_ok = DateTime, True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value and value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value and value.replace(tzinfo=UTC)


def replace_unstorable(text: str) -> str:
    """Replace what PostgreSQL or UTF-8 cannot hold in `text`: NUL and lone surrogates become U+FFFD."""
    if text.isascii() and "\0" not in text:  # as nearly all is
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "surrogatepass").decode("utf-8", "replace")


class FreeText(TypeDecorator[str]):
    """Text from outside, such as a name, a path or an error message: any characters at all."""

    impl, cache_ok = Text, True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value and replace_unstorable(value)


class StateText(TypeDecorator[RunState]):
    """A `RunState`, stored as its name. Any text can be compared with it, as queries do."""

    impl, cache_ok = Text, True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> RunState | None:
        return None if value is None else RunState(value)


class Json(TypeDecorator[Any]):
    """Plain values, stored as JSON text so that both databases hold the same bytes."""

    impl, cache_ok = Text, True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        return json.dumps(value, default=str)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class _Function(FunctionElement[Any]):
    """SQL function that each kind of database writes in its own way; `connections` defines what SQLite lacks."""

    sqlite: str
    postgresql: str


@compiles(_Function)
def _compile_function(element: _Function, compiler: SQLCompiler, **options: Any) -> str:
    template: str = getattr(element, compiler.dialect.name)
    return template.format(*(compiler.process(clause, **options) for clause in element.clauses))


class is_like(_Function):  # noqa: N801  (an SQL function)
    """SQL function: whether a text is like a pattern, with `\\` before signs, in letters of any size and alphabet.

    SQLite's own comparison knows ASCII, and PostgreSQL's a locale.
    """

    type, inherit_cache = Boolean(), True
    sqlite = "(iif(length({0}) = length(CAST({0} AS BLOB)), {0}, folded({0})) LIKE folded({1}) ESCAPE '\\')"
    postgresql = """(lower(({0}) COLLATE "und-x-icu") LIKE lower(({1}) COLLATE "und-x-icu") ESCAPE '\\')"""


class median(_Function):  # noqa: N801  (an SQL function)
    """SQL aggregate: the median of numbers."""

    type, inherit_cache = Double(), True
    sqlite, postgresql = "median({})", "percentile_cont(0.5) WITHIN GROUP (ORDER BY {})"


class json_object(_Function):  # noqa: N801  (an SQL function)
    """SQL aggregate: keys and values of a group's rows as one dictionary; a tuple for each row would cost far more."""

    type, inherit_cache = JSON(), True
    sqlite, postgresql = "json_group_object({}, {})", "json_object_agg({}, {})"


class utc_now(_Function):  # noqa: N801  (an SQL function)
    """SQL function: the database's clock, less `seconds_ago`. One clock serves drivers on different machines."""

    type, inherit_cache = UtcTime(), True
    # SQLite counts milliseconds; SQLAlchemy reads six digits.
    sqlite = "(strftime('%Y-%m-%d %H:%M:%f', 'now', {} || ' seconds') || '000')"
    postgresql = "(statement_timestamp() AT TIME ZONE 'UTC' + make_interval(secs => {}))"

    def __init__(self, seconds_ago: float = 0.0) -> None:
        super().__init__(sql.literal(-float(seconds_ago)) if seconds_ago else literal_column("0"))


class _Found(_Function):
    """SQL expression: what the row of a table that has a value in one column has in another."""

    inherit_cache = True
    sqlite = postgresql = "(SELECT referred.{} FROM {} AS referred WHERE referred.{} = {})"

    def __init__(self, wanted: str, of: str, given: str, value: Any) -> None:
        self.type = Integer() if wanted == "key" else Text()
        super().__init__(*map(literal_column, (wanted, of, given)), value)


class ReferenceKey(TypeDecorator[str]):
    """Reference to a row: its integer key in rows, a text to whoever writes and reads them.

    A text becomes a key where it is a parameter, and a key a text where it is what a statement returns; within a
    statement keys are compared with keys. A text that is not there has no key: NULL. A list of texts is given as a
    selection of keys (`select_runs`).
    """

    impl, cache_ok = Integer, True

    def __init__(self, table: str, column: str) -> None:
        super().__init__()
        self.table, self.column = table, column

    def key_of(self, text: Any) -> ColumnElement[Any]:
        """Key of the row that has a text."""
        return _Found("key", self.table, self.column, text)

    def bind_expression(self, bindparam: Any) -> ColumnElement[Any]:
        return self.key_of(sql.type_coerce(bindparam, Text))

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        """Text of the row with a key."""
        return _Found(self.column, self.table, "key", column)


RUN_KEY, NAME_KEY = ReferenceKey("all_runs", "id"), ReferenceKey("names", "text")
key_of_run, id_of_run = RUN_KEY.key_of, RUN_KEY.column_expression
key_of_name, name_of_key = NAME_KEY.key_of, NAME_KEY.column_expression


class _json_items(_Function):  # noqa: N801  (an SQL function)
    """SQL function: a row for each text of a list."""

    inherit_cache = True
    sqlite, postgresql = "json_each({}) AS items", "json_array_elements_text(CAST({} AS JSON)) AS items(value)"


def select_list(name: str, **given: Any) -> Select[Any]:
    """Select the items of a list of texts, one parameter: `IN (…)` has one for each, of which SQLite takes 32,766."""
    texts = sql.bindparam(name, type_=Json, **given)
    return select(literal_column("items.value", Text)).select_from(_json_items(texts))


def select_items(items: Iterable[str]) -> Select[Any]:
    """Select texts that are given."""
    return select_list("items", value=list(items), unique=True)


def select_runs(run_ids: Iterable[str]) -> Select[Any]:
    """Select the keys of the runs with these ids, to compare rows' references to runs with."""
    runs = sql.table("all_runs", sql.column("key", Integer), sql.column("id", Text))
    return select(runs.c.key).where(runs.c.id.in_(select_items(run_ids)))


def find_row(connection: Connection, table: Table, *, for_update: bool = False, **values: Any) -> Row[Any] | None:
    """The row of a table that has these values; other writers of it wait until this transaction ends (`for_update`)."""
    found = select(table).where(*(table.c[name] == value for name, value in values.items()))
    return connection.execute(found.with_for_update() if for_update else found).first()


def change_row(connection: Connection, table: Table, changes: Mapping[str, Any], **values: Any) -> None:
    """Change the row of a table that has these values."""
    its = (table.c[name] == value for name, value in values.items())
    connection.execute(sql.update(table).where(*its).values(changes))


@lru_cache
def upsert(
    dialect: str,
    table: Table,
    keys: tuple[str, ...],
    update: tuple[str, ...] = (),
    also: Callable[[Any], Mapping[str, Any]] = lambda new: {},
) -> Insert:
    """Statement that inserts rows, and updates rows whose natural key is in the table already; each is built once.

    Args:
        keys: columns of the natural key.
        update: columns to update; where there are none, a row is left out that has any key of one that is there.
        also: gives, for the row to be inserted, further columns to update, each with an expression.
    """
    insert = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    changes = {**{name: insert.excluded[name] for name in update}, **also(insert.excluded)}
    if not changes:
        return insert.on_conflict_do_nothing()  # type: ignore[no-any-return]
    return insert.on_conflict_do_update(index_elements=keys, set_=changes)  # type: ignore[no-any-return]


def upsert_rows(
    connection: Connection, table: Table, rows: Sequence[dict[str, Any]], update: tuple[str, ...] = (), **options: Any
) -> None:
    """Insert rows, given by column name, or update those whose primary key is there, as `upsert` describes."""
    if rows:
        keys = tuple(table.primary_key.columns.keys())
        connection.execute(upsert(connection.dialect.name, table, keys, update, **options), rows)


def lock_until_commit(connection: Connection, name: str) -> None:
    """Make other writers of `name` wait until this transaction ends; on SQLite all writers wait (`BEGIN IMMEDIATE`)."""
    if connection.dialect.name == "postgresql":
        lock = sql.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
        connection.execute(lock, {"name": replace_unstorable(name)})
