"""Differences between SQLite and PostgreSQL: opening a database, upserts, locks."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    URL,
    BindParameter,
    ColumnElement,
    Connection,
    Engine,
    Insert,
    Row,
    Select,
    SQLColumnExpression,
    Table,
    Text,
    bindparam,
    create_engine,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects import sqlite

from orchestrator.errors import RegistryError
from orchestrator.registry import sqlite_engine
from orchestrator.registry.column_types import replace_unstorable
from orchestrator.registry.tables import ALL_RUNS

_CONNECT_TIMEOUT_S = 10


def open_engine(url: URL, *, read_only: bool = False) -> Engine:
    """Make an engine for the URL; for SQLite, make the file's folder too, unless it is opened for reading alone.

    Raises: RegistryError, OSError.
    """
    if url.get_backend_name() == "sqlite":
        return sqlite_engine.open_for_reading(url) if read_only else sqlite_engine.open_for_writing(url)
    try:
        import psycopg  # noqa: F401  (an extra of the package)
    except ImportError:
        raise RegistryError(
            "A PostgreSQL registry needs psycopg; run: pip install 'bert-orchestrator[postgres]'"
        ) from None
    return create_engine(
        url,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={"connect_timeout": _CONNECT_TIMEOUT_S, "application_name": "orchestrator"},
    )


def lock_until_commit(connection: Connection, name: str) -> None:
    """Make other writers of `name` wait until this transaction ends; on SQLite all writers wait (`BEGIN IMMEDIATE`)."""
    if connection.dialect.name == "postgresql":
        connection.execute(
            text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": replace_unstorable(name)}
        )


def find_row(connection: Connection, table: Table, *, for_update: bool = False, **values: Any) -> Row[Any] | None:
    """The row of a table that has these values; None where there is none.

    Args:
        for_update: whether other writers of the row wait until this transaction ends.
    """
    found = select(table).where(*(table.c[name] == value for name, value in values.items()))
    return connection.execute(found.with_for_update() if for_update else found).first()


def change_row(connection: Connection, table: Table, changes: Mapping[str, Any], **values: Any) -> None:
    """Change the row of a table that has these values."""
    its = (table.c[name] == value for name, value in values.items())
    connection.execute(update(table).where(*its).values(changes))


def select_list(dialect: str, name: str) -> Select[Any]:
    """Select the items of a list of texts that the statement gets as one parameter, made by `list_value`."""
    return _select_of(dialect, bindparam(name, type_=_list_type(dialect)))


def _list_type(dialect: str) -> Any:
    return Text if dialect == "sqlite" else ARRAY(Text)


def _select_of(dialect: str, given: BindParameter[Any]) -> Select[Any]:
    if dialect == "sqlite":
        return select(func.json_each(given).table_valued("value").c.value)
    return select(func.unnest(given))


def list_value(dialect: str, items: Iterable[str]) -> str | list[str]:
    """A list of texts as the parameter that `select_list` names."""
    return json.dumps(list(items)) if dialect == "sqlite" else list(items)


def select_items(connection: Connection, items: Iterable[str]) -> Select[Any]:
    """Select texts that are given, as one parameter: `IN (…)` has one for each, and SQLite takes 32,766 at most.

    Several in one statement are parameters of their own.
    """
    dialect = connection.dialect.name
    given = bindparam("items", list_value(dialect, items), type_=_list_type(dialect), unique=True)
    return _select_of(dialect, given)


def select_runs(connection: Connection, run_ids: Iterable[str]) -> Select[Any]:
    """Select the keys of the runs with these ids, to compare rows' references to runs with."""
    return select(ALL_RUNS.c.key).where(ALL_RUNS.c.id.in_(select_items(connection, run_ids)))


def json_object(
    connection: Connection, key: SQLColumnExpression[str], value: SQLColumnExpression[str]
) -> ColumnElement[Any]:
    """Aggregate of a statement's rows into one dictionary for each group of them.

    It comes as one text: of many rows with few columns, making a tuple of each costs more than all else.
    """
    is_sqlite = connection.dialect.name == "sqlite"
    aggregate = func.json_group_object if is_sqlite else func.json_object_agg
    return aggregate(key, value, type_=JSON)


@lru_cache
def upsert(
    dialect: str,
    table: Table,
    keys: tuple[str, ...],
    update: tuple[str, ...] = (),
    newer: Callable[[Any], ColumnElement[bool]] | None = None,
    also: Callable[[Any], Mapping[str, Any]] | None = None,
) -> Insert:
    """Statement that inserts rows, and updates rows whose natural key is in the table already.

    Building such a statement costs far more than running it, so each is built once.

    Args:
        keys: columns of the natural key; none for whatever keeps the row out, where nothing is updated.
        update: columns to update; a row that is there stays as it is where this is empty.
        newer: gives, for the row to be inserted, the condition under which it may update the row that is there.
        also: gives, for the row to be inserted, further columns to update, each with an expression.
    """
    insert = _insert(dialect, table)
    if not update:
        statement: Insert = insert.on_conflict_do_nothing(index_elements=keys or None)
    else:
        statement = insert.on_conflict_do_update(
            index_elements=keys,
            set_={name: insert.excluded[name] for name in update} | dict(also(insert.excluded) if also else {}),
            where=None if newer is None else newer(insert.excluded),
        )
    return statement


def _insert(dialect: str, table: Table) -> Any:
    if dialect == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # which loads five drivers' modules: SQLite is spared that

    return postgresql.insert(table)


def upsert_rows(
    connection: Connection,
    table: Table,
    keys: tuple[str, ...],
    update: tuple[str, ...],
    rows: Sequence[dict[str, Any]],
    *,
    also: Callable[[Any], Mapping[str, Any]] | None = None,
) -> None:
    """Insert or update rows, given by column name, as `upsert` describes."""
    if rows:
        connection.execute(upsert(connection.dialect.name, table, keys, update, None, also), rows)
