"""Statements that SQLite and PostgreSQL write differently: lists as one parameter, upserts, locks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

from sqlalchemy import ColumnElement, Connection, Insert, Row, Select, Table, bindparam, func, select, text, update

from orchestrator.registry.column_types import TextList, replace_unstorable
from orchestrator.registry.tables import ALL_RUNS


def lock_until_commit(connection: Connection, name: str) -> None:
    """Make other writers of `name` wait until this transaction ends; on SQLite all writers wait (`BEGIN IMMEDIATE`)."""
    if connection.dialect.name == "postgresql":
        lock = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
        connection.execute(lock, {"name": replace_unstorable(name)})


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


def select_list(dialect: str, name: str, **given: Any) -> Select[Any]:
    """Select the items of a list of texts, which is one parameter: `IN (…)` has one for each, and SQLite takes 32,766.

    Args:
        given: options of the parameter, such as its `value`.
    """
    texts = bindparam(name, type_=TextList, **given)
    if dialect == "sqlite":
        return select(func.json_each(texts).table_valued("value").c.value)
    return select(func.unnest(texts))


def select_items(connection: Connection, items: Iterable[str]) -> Select[Any]:
    """Select texts that are given."""
    return select_list(connection.dialect.name, "items", value=list(items), unique=True)


def select_runs(connection: Connection, run_ids: Iterable[str]) -> Select[Any]:
    """Select the keys of the runs with these ids, to compare rows' references to runs with."""
    return select(ALL_RUNS.c.key).where(ALL_RUNS.c.id.in_(select_items(connection, run_ids)))


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
    insert = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    new = insert.excluded
    changes = {name: new[name] for name in update} | dict(also(new) if also else {})
    if not changes:
        return insert.on_conflict_do_nothing(index_elements=keys or None)  # type: ignore[no-any-return]
    where = None if newer is None else newer(new)
    return insert.on_conflict_do_update(index_elements=keys, set_=changes, where=where)  # type: ignore[no-any-return]


def upsert_rows(
    connection: Connection,
    table: Table,
    keys: tuple[str, ...],
    update: tuple[str, ...],
    rows: Sequence[dict[str, Any]],
    **options: Any,
) -> None:
    """Insert or update rows, given by column name, as `upsert` describes."""
    if rows:
        connection.execute(upsert(connection.dialect.name, table, keys, update, **options), rows)
