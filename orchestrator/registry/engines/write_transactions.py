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

from orchestrator.registry.engines.driver_statements import DriverStatement, array
from orchestrator.registry.engines.sqlite_engine import file_of
from orchestrator.registry.engines.write_queue import WriteQueue

Values = tuple[Any, ...]
_ROWS_AT_ONCE = (100, 10, 1)
"""Numbers of rows of one statement on SQLite, the largest first: more bring nothing."""


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

    def insert_rows(self, statement: DriverStatement, rows: Sequence[Values]) -> None:
        """Run a statement that inserts rows, no two of them with the same key; a server takes them all at once."""
        if self.dialect == "sqlite" or len(rows) < 2:
            self.run_many(statement, rows)
        else:
            self.insert_columns(statement, [list(column) for column in zip(*rows, strict=True)], len(rows))

    def insert_columns(self, statement: DriverStatement, columns: Sequence[Any], number: int) -> None:
        """Run a statement that inserts rows, many of them, into a table without other indexes than its key.

        On SQLite other indexes make one statement of many rows slow: SQLite keeps a copy of each page that it changes,
        so that it can take the statement back.

        Args:
            columns: in the statement's order a list with a value for each row, or the one value that all rows have, as
                they are stored; on a server no two rows may have the same key.
            number: how many rows.
        """
        varying = tuple(place for place, column in enumerate(columns) if isinstance(column, list))
        shared = [column for column in columns if not isinstance(column, list)]
        if self.dialect != "sqlite":
            arrays = [array(columns[place]) for place in varying]
            self._cursor.execute(_for_columns(statement, 0, varying), (*shared, *arrays))
            return
        done = 0
        for size in _ROWS_AT_ONCE:
            sql = _for_columns(statement, size, varying)
            while done + size <= number:
                rows = zip(*(columns[place][done : done + size] for place in varying), strict=True)
                self._cursor.execute(sql, (*shared, *chain.from_iterable(rows)))
                done += size

    def read(self, statement: DriverStatement, values: Values) -> list[Values]:
        """Run a statement that selects, and return its rows as the driver gives them."""
        rows: list[Values] = self._cursor.execute(statement.sql, values).fetchall()
        return rows

    def now(self) -> tuple[str, ...]:
        """The database's clock as SQLite stores it; nothing on a server, whose statements read the clock themselves."""
        if self.dialect != "sqlite":
            return ()
        time: tuple[str] = self._cursor.execute("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'").fetchone()
        return time


@lru_cache
def _for_columns(statement: DriverStatement, number: int, varying: tuple[int, ...]) -> str:
    return statement.for_columns(number, varying)


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
