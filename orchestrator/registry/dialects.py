"""Differences between SQLite and PostgreSQL: opening a database, upserts, locks."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import URL, ColumnElement, Connection, Engine, FromClause, Insert, Table, create_engine, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Session

from orchestrator.errors import RegistryError
from orchestrator.registry.column_types import replace_unstorable

BUSY_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 10


def open_engine(url: URL) -> Engine:
    """Make an engine for the URL; for SQLite, make the file's folder too. Raises: RegistryError, OSError."""
    if url.get_backend_name() == "sqlite":
        return _open_sqlite(url)
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


def _open_sqlite(url: URL) -> Engine:
    path = Path(str(url.database))
    if path.is_dir():
        raise RegistryError(f"The registry {path} is a folder; name a file in it, {path / 'registry.sqlite'} say.")
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where _begin_sqlite says, not where Python's driver guesses
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        _switch_to_wal(connection)


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; try again while another process does so, which SQLite's busy handler does not."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get("writing")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def lock_until_commit(connection: Connection, name: str) -> None:
    """Make other writers of `name` wait until this transaction ends; on SQLite all writers wait (`BEGIN IMMEDIATE`)."""
    if connection.dialect.name == "postgresql":
        connection.execute(
            text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": replace_unstorable(name)}
        )


@lru_cache
def upsert(
    dialect: str,
    table: FromClause,
    keys: tuple[str, ...],
    update: tuple[str, ...] = (),
    newer: Callable[[Any], ColumnElement[bool]] | None = None,
) -> Insert:
    """Statement that inserts rows, and updates rows whose natural key is in the table already.

    Building such a statement costs far more than running it, so each is built once.

    Args:
        keys: columns of the natural key.
        update: columns to update; a row that is there stays as it is where this is empty.
        newer: gives, for the row to be inserted, the condition under which it may update the row that is there.
    """
    assert isinstance(table, Table)
    insert = sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
    if not update:
        return insert.on_conflict_do_nothing(index_elements=keys)
    return insert.on_conflict_do_update(
        index_elements=keys,
        set_={name: insert.excluded[name] for name in update},
        where=None if newer is None else newer(insert.excluded),
    )


def upsert_rows(
    session: Session,
    table: type[DeclarativeBase],
    keys: tuple[str, ...],
    update: tuple[str, ...],
    rows: Sequence[dict[str, Any]],
    *,
    newer: Callable[[Any], ColumnElement[bool]] | None = None,
) -> None:
    """Insert or update rows, given by column name, as `upsert` describes."""
    if rows:
        session.execute(upsert(session.get_bind().dialect.name, table.__table__, keys, update, newer), rows)
