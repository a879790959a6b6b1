"""Transactions for writing by the database's own driver: for measurements and trials, which are written all the time.

Running a statement through SQLAlchemy costs several times what the database needs for a short one. So SQLAlchemy makes
the text of a statement once, and the driver runs it, on a connection that is kept for the next transaction.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Self

from sqlalchemy import URL, Connection, Dialect, Engine, Executable, PoolProxiedConnection, Table
from sqlalchemy.sql.expression import ClauseElement

from orchestrator.registry.sqlite_engine import allow_writing

Values = tuple[Any, ...]
_ROWS_AT_ONCE = (100, 10, 1)
"""Numbers of rows of one statement on SQLite, the largest first: more bring nothing."""
_TRUSTED_S = 1.0
"""Time for which a server's connection is taken to live after a transaction."""
_MOST_KEYS = 50_000
"""Keys that a process keeps; it begins anew with more."""


class Prepared:
    """A statement as a driver takes it; each row gives values for the columns and parameters `names`."""

    def __init__(self, statement: Executable, dialect: str, names: Sequence[str]) -> None:
        assert isinstance(statement, ClauseElement)
        compiled: Any = statement.compile(dialect=_driver_dialect(dialect), column_keys=list(names))
        left_out = {column.name for column in getattr(compiled, "insert_prefetch", ()) or ()} - set(names)
        assert not left_out, f"no value for {left_out}"  # a default that only SQLAlchemy would fill in
        self.sql = str(compiled)
        convert = compiled._bind_processors
        self._order = list(compiled.positiontup)
        self._constants = {
            name: convert[name](value) if name in convert else value
            for name, value in compiled.params.items()
            if name not in names
        }
        given = [(place, name) for place, name in enumerate(self._order) if name in names]
        self._conversions = [(place, convert[name]) for place, name in given if name in convert]

    def values(self, row: Mapping[str, Any]) -> Values:
        """Values of one row in the order of the statement, as they are stored."""
        given = {**self._constants, **row}
        stored = [given[name] for name in self._order]
        for place, convert in self._conversions:
            stored[place] = convert(stored[place])
        return tuple(stored)


class WriteTransaction:
    """One open transaction, with the keys of names and series that are known to be committed, by name and curve."""

    def __init__(self, cursor: Any, dialect: str, keys: dict[Any, int]) -> None:
        self._cursor = cursor
        self.dialect = dialect
        self.keys = keys
        self.new_keys: dict[Any, int] = {}
        """Keys that this transaction has found or made."""

    @classmethod
    def within(cls, connection: Connection) -> Self:
        """The open transaction of a connection, to write in it by the driver as well."""
        return cls(connection.connection.cursor(), connection.dialect.name, {})

    def run(self, statement: Prepared, row: Mapping[str, Any]) -> Any:
        """Run a statement once, and return the driver's cursor."""
        return self._cursor.execute(statement.sql, statement.values(row))

    def read(self, statement: Prepared, row: Mapping[str, Any]) -> list[Values]:
        """Run a statement that returns rows, and return them as the driver gives them."""
        rows: list[Values] = self.run(statement, row).fetchall()
        return rows

    def run_many(self, statement: Prepared, rows: Sequence[Values]) -> None:
        """Run a statement once for each row, whose values stand in its order."""
        if len(rows) == 1:
            self._cursor.execute(statement.sql, rows[0])
        elif rows:
            self._cursor.executemany(statement.sql, rows)

    def upsert(
        self, table: Table, columns: Mapping[str, Sequence[Any]], keys: Sequence[str], update: Sequence[str]
    ) -> None:
        """Insert many rows, or update those that are there.

        Args:
            columns: values of each column as they are stored, one for each row; of rows with the same key the last one
                counts. NaN is stored as NULL, and sooner written than None.
            keys: columns of the natural key.
            update: columns to update; a row that is there stays as it is where there are none.
        """
        names, values = tuple(columns), list(columns.values())
        if not values[0]:
            return
        if self.dialect != "sqlite":
            places = {key: place for place, key in enumerate(zip(*(columns[name] for name in keys), strict=True))}
            if len(places) < len(values[0]):  # a server's statement cannot change a row twice
                values = [[column[place] for place in places.values()] for column in values]
            sql = _upsert_sql(self.dialect, table, names, tuple(keys), tuple(update), 0)
            self._cursor.execute(sql, [_array(column) for column in values])
            return
        width, done = len(names), 0
        flat: list[Any] = [None] * (width * len(values[0]))
        for place, column in enumerate(values):
            flat[place::width] = column
        for size in _ROWS_AT_ONCE:
            sql = _upsert_sql(self.dialect, table, names, tuple(keys), tuple(update), size)
            while done + size * width <= len(flat):
                self._cursor.execute(sql, flat[done : done + size * width])
                done += size * width


@lru_cache
def _upsert_sql(
    dialect: str, table: Table, columns: tuple[str, ...], keys: tuple[str, ...], update: tuple[str, ...], number: int
) -> str:
    """SQL that upserts rows: on SQLite so many of them, on a server any number, given as an array for each column."""
    if dialect == "sqlite":
        row = f"({', '.join('?' * len(columns))})"
        rows = f"VALUES {', '.join([row] * number)}"
    else:
        types = (table.c[name].type.compile(_driver_dialect(dialect)) for name in columns)
        rows = f"SELECT * FROM unnest({', '.join(f'%s::{each}[]' for each in types)})"
    changes = ", ".join(f"{name} = excluded.{name}" for name in update)
    then = f"DO UPDATE SET {changes}" if update else "DO NOTHING"
    return f"INSERT INTO {table} ({', '.join(columns)}) {rows} ON CONFLICT ({', '.join(keys)}) {then}"


def _array(values: Sequence[Any]) -> str | Sequence[Any]:
    """Values of a column as a server's array: numbers as its text, which takes a tenth of the driver's time."""
    if any(isinstance(value, str) for value in values):
        return values
    different = values[:1] if values.count(values[0]) == len(values) else values  # as the series of a curve
    texts = ["NULL" if value is None or value != value else repr(value) for value in different]
    return f"{{{','.join(texts * (len(values) // len(texts)))}}}"


@lru_cache
def _driver_dialect(name: str) -> Dialect:
    """Dialect whose statements have parameters by their place, which is what the driver takes fastest."""
    driver, style = ("sqlite", "qmark") if name == "sqlite" else ("postgresql+psycopg", "format")
    make: Any = URL.create(driver).get_dialect()
    dialect: Dialect = make(paramstyle=style)
    return dialect


class Writers:
    """Connections for writing, kept between transactions; threads may share this object.

    They come from SQLAlchemy's pool, which finds out whether they still live, and are kept for a moment, since asking
    costs as much as a short transaction.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._is_sqlite = engine.dialect.name == "sqlite"
        self._idle: list[tuple[PoolProxiedConnection, Any, float]] = []
        self._keys: dict[Any, int] = {}

    def forget_keys(self) -> None:
        """Forget the keys of series, which a transaction is about to remove, and of names."""
        self._keys = {}  # another thread's transaction goes on with those that it began with

    @contextmanager
    def transaction(self) -> Iterator[WriteTransaction]:
        """Open a transaction: committed at the end of the block, rolled back when the block raises."""
        connection, driver = self._connect()
        try:
            if self._is_sqlite:
                driver.execute("BEGIN IMMEDIATE")
            transaction = WriteTransaction(driver.cursor(), self.engine.dialect.name, self._keys)
            yield transaction
            if self._is_sqlite:
                driver.execute("COMMIT")  # prepared once
            else:
                driver.commit()
        except BaseException:
            connection.invalidate()  # it is closed, and its transaction and its locks go with it
            raise
        self._idle.append((connection, driver, time.monotonic()))
        transaction.keys.update(transaction.new_keys)
        if len(transaction.keys) > _MOST_KEYS:
            self.forget_keys()

    def close(self) -> None:
        """Close the connections that no transaction uses."""
        while self._idle:
            self._idle.pop()[0].close()
        self.engine.dispose()

    def _connect(self) -> tuple[PoolProxiedConnection, Any]:
        """Connection of the pool, and the driver's own."""
        with suppress(IndexError):  # where none is idle
            while True:
                connection, driver, used_at = self._idle.pop()
                if time.monotonic() - used_at < _TRUSTED_S:
                    return connection, driver
                connection.close()
        connection = self.engine.raw_connection()
        return connection, allow_writing(connection) if self._is_sqlite else connection.driver_connection
