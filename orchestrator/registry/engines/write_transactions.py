"""Transactions for writing by the database's own driver: for measurements and trials, which are written all the time.

A transaction runs finished statements (`driver_statements.py`) on a connection of the driver. On SQLite connections
are kept open for the next transaction, so that a short one costs little more than the database's own work; on a server
they come from SQLAlchemy's pool, which finds out whether they still live.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from orchestrator.registry.engines.driver_statements import DriverStatement
from orchestrator.registry.engines.sqlite_engine import file_of
from orchestrator.registry.engines.write_queue import WriteQueue

Values = tuple[Any, ...]
_ROWS_AT_ONCE = 50
"""Rows of one statement on SQLite: more bring nothing."""


class WriteTransaction:
    """One open transaction.

    Args:
        dialect: kind of database: `sqlite` or `postgresql`.
    """

    def __init__(self, cursor: Any, dialect: str) -> None:
        self._cursor = cursor
        self.dialect = dialect

    def run(self, statement: DriverStatement, values: Values) -> None:
        """Run a statement once."""
        self._cursor.execute(statement.sql, values)

    def run_many(self, statement: DriverStatement, rows: Sequence[Values]) -> None:
        """Run a statement once for each row."""
        if len(rows) == 1:
            self._cursor.execute(statement.sql, rows[0])
        elif rows:
            self._cursor.executemany(statement.sql, rows)

    def insert_many(self, statement: DriverStatement, rows: Sequence[Values]) -> None:
        """Run a statement that inserts rows, given as they are stored, in the order of its columns."""
        rest = 0
        if self.dialect == "sqlite" and len(rows) >= _ROWS_AT_ONCE:
            rest = len(rows) - len(rows) % _ROWS_AT_ONCE
            several = _for_rows(statement)
            for begin in range(0, rest, _ROWS_AT_ONCE):
                self._cursor.execute(several, tuple(chain.from_iterable(rows[begin : begin + _ROWS_AT_ONCE])))
        self.run_many(statement, rows[rest:])

    def read(self, statement: DriverStatement, values: Values) -> list[Values]:
        """Run a statement that selects, and return its rows as the driver gives them."""
        rows: list[Values] = self._cursor.execute(statement.sql, values).fetchall()
        return rows

    def now(self) -> str | None:
        """The database's clock, as SQLite stores it; None on a server, whose statements read its clock themselves."""
        if self.dialect != "sqlite":
            return None
        time: str = self._cursor.execute("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'").fetchone()[0]
        return time


@lru_cache
def _for_rows(statement: DriverStatement) -> str:
    return statement.for_rows(_ROWS_AT_ONCE)


class SqliteWriters:
    """Connections for writing one SQLite file, kept open between transactions; threads may share this object."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._idle: list[tuple[Any, WriteQueue, WriteTransaction]] = []

    @contextmanager
    def transaction(self) -> Iterator[WriteTransaction]:
        """Open a transaction: committed at the end of the block, rolled back when the block raises."""
        try:
            kept = self._idle.pop()
        except IndexError:
            try:
                kept = self._connect()
            except sqlite3.Error as error:
                raise as_sqlalchemy_error(error, sqlite3.Error) from error
        connection, queue, transaction = kept
        try:
            queue.begin(connection.execute)
            yield transaction
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise as_sqlalchemy_error(error, sqlite3.Error) from error
        finally:
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            if connection.in_transaction:
                connection.close()  # it goes with its locks
                queue.close()
            else:
                self._idle.append(kept)

    def close(self) -> None:
        """Close the connections that no transaction uses."""
        while self._idle:
            connection, queue, _ = self._idle.pop()
            queue.close()
            connection.close()

    def _connect(self) -> tuple[Any, WriteQueue, WriteTransaction]:
        pooled = self._engine.raw_connection()
        connection: Any = pooled.driver_connection
        pooled.detach()
        connection.execute("PRAGMA query_only = OFF")  # it may have read before
        if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
            # With a write-ahead log nothing but BEGIN waits, and the queue does that.
            connection.execute("PRAGMA busy_timeout = 0")
        return connection, WriteQueue(file_of(self._engine.url)), WriteTransaction(connection.cursor(), "sqlite")


class ServerWriters:
    """Transactions on a server's connections, which SQLAlchemy's pool keeps."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def transaction(self) -> Iterator[WriteTransaction]:
        """Open a transaction: committed at the end of the block, rolled back when the block raises."""
        import psycopg

        dialect = self._engine.dialect
        try:
            pooled = self._engine.raw_connection()
        except psycopg.Error as error:
            raise as_sqlalchemy_error(error, psycopg.Error) from error
        try:
            yield WriteTransaction(pooled.cursor(), dialect.name)
            pooled.commit()
        except psycopg.Error as error:
            is_broken = dialect.is_disconnect(error, pooled, None)  # type: ignore[arg-type]
            if is_broken:
                pooled.invalidate(error)
            raise as_sqlalchemy_error(error, psycopg.Error, connection_invalidated=is_broken) from error
        finally:
            pooled.close()  # which rolls back what is not committed


def as_sqlalchemy_error(error: Exception, base: type[Exception], *, connection_invalidated: bool = False) -> DBAPIError:
    """Wrap an error of a driver as SQLAlchemy does, so that one place tells what it means.

    Args:
        base: base class of the driver's errors.
    """
    wrapped = DBAPIError.instance(
        None, None, error, base, hide_parameters=True, connection_invalidated=connection_invalidated
    )
    assert isinstance(wrapped, DBAPIError)
    return wrapped
