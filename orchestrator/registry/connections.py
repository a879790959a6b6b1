"""Connections to SQLite and PostgreSQL: engines, and transactions by the driver alone.

A SQLite file has a write-ahead log, so that readers and a writer do not wait for one another. Every writing transaction
begins with `BEGIN IMMEDIATE`, which takes the write lock before it reads; a reading one refuses to write
(`query_only`). Of 16 that write all the time 99 of 100 transactions wait for a few milliseconds at most.

Running a statement through SQLAlchemy costs several times what the database needs for a short one. So measurements and
trials are written by the driver itself (`WriteTransaction`), with SQL text that SQLAlchemy makes once, on a connection
that is kept for the next transaction.
"""

import math
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from statistics import median
from typing import Any, Self

from sqlalchemy import URL, Connection, Dialect, Engine, Table, create_engine, event
from sqlalchemy.pool import PoolProxiedConnection, QueuePool
from sqlalchemy.sql.expression import ClauseElement

from orchestrator.base.errors import RegistryError
from orchestrator.registry.location import BUSY_TIMEOUT_S, reading_address

VERSION_TABLE = "registry_revision"
"""Table that every registry has: it holds the revision of the others."""
_CONNECT_TIMEOUT_S = 10
_ROWS_AT_ONCE = (100, 10, 1)
"""Numbers of rows of one statement on SQLite, the largest first: more bring nothing."""


def open_engine(url: URL, *, read_only: bool = False) -> Engine:
    """Make an engine for the URL; for SQLite, make the file's folder too, unless it is opened for reading alone.

    Raises: RegistryError.
    """
    if url.get_backend_name() != "sqlite":
        options = {"connect_timeout": _CONNECT_TIMEOUT_S, "application_name": "orchestrator"}
        try:
            return create_engine(url, pool_pre_ping=True, hide_parameters=True, connect_args=options)
        except ImportError:  # an extra of the package
            needed = "A PostgreSQL registry needs psycopg; run: pip install 'bert-orchestrator[postgres]'"
            raise RegistryError(needed) from None
    path = Path(str(url.database))
    if os.path.isdir(path):  # noqa: PTH112 - False of a path that cannot be asked for
        raise RegistryError(f"The registry {path} is a folder; name a file in it, {path / 'registry.sqlite'} say.")
    if read_only:
        try:
            path.stat()
        except PermissionError as error:
            raise RegistryError(f"The registry {path} cannot be read: {error.strerror}.") from None
        except (OSError, ValueError):  # it is not there, or no path can be called so
            return open_empty()
    else:
        with suppress(OSError):  # which SQLite meets as well
            path.parent.mkdir(parents=True, exist_ok=True)
    address = reading_address(path) if read_only else str(path)
    connect = partial(sqlite3.connect, address, uri=read_only, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    # No thread waits for another's connection: each may keep one for writing (`Database.transaction`).
    return _sqlite_engine(None if read_only else path, creator=connect, poolclass=QueuePool, max_overflow=-1)


def open_empty() -> Engine:
    """Make an engine for a database in memory, without tables; threads take turns on its one connection."""
    options = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}
    return _sqlite_engine(None, connect_args={"check_same_thread": False}, **options)


def _sqlite_engine(written: Path | None, **options: Any) -> Engine:
    engine = create_engine("sqlite://", hide_parameters=True, **options)
    event.listen(engine, "connect", partial(_set_up, written=written))
    event.listen(engine, "begin", _begin)
    return engine


def _set_up(connection: sqlite3.Connection, _record: Any, *, written: Path | None) -> None:
    """Leave the beginning of transactions to `_begin`, and define the functions that PostgreSQL has by itself."""
    connection.isolation_level = None
    connection.execute("PRAGMA page_size = 2048")  # of a new file: a short commit writes a few pages, whole
    # 64 MB of pages: those of a big registry lie apart, and with SQLite's 2 MB a board reads most of them repeatedly.
    connection.execute("PRAGMA cache_size = -65536")
    connection.create_function("folded", 1, lambda text: text and text.lower(), deterministic=True)
    connection.create_aggregate("stddev_samp", 1, partial(_Aggregate, _deviation))  # type: ignore[arg-type]
    connection.create_aggregate("median", 1, partial(_Aggregate, median))  # type: ignore[arg-type]
    if written is None:
        return
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")
    # Pages of the log between two copies into the file, 16 MB: four times SQLite's own, so that the pages which every
    # trial changes are copied less often.
    connection.execute("PRAGMA wal_autocheckpoint = 8000")
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        refuse_foreign([name for (name,) in tables], str(written))  # before the switch, which is written into the file
        _switch_to_wal(connection)


class _Aggregate:
    """Statistic of the numbers of a group, NULLs aside; NULL of none."""

    def __init__(self, compute: Callable[[list[float]], float | None]) -> None:
        self._compute, self._values = compute, list[float | None]()
        self.step = self._values.append  # without a function of Python's between, which would take as long as all else

    def finalize(self) -> float | None:
        numbers = [value for value in self._values if value is not None]
        return self._compute(numbers) if numbers else None


def _deviation(numbers: list[float]) -> float | None:
    """Standard deviation; None of one number, or an infinite one."""
    from orchestrator.significance.summary import sample_variance  # of use to who groups runs alone

    return math.sqrt(sample_variance(numbers)) if len(numbers) > 1 and math.isfinite(sum(numbers)) else None


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


def _begin(connection: Connection) -> None:
    is_writing = bool(connection.get_execution_options().get("writing"))
    driver = allow_writing(connection.connection, is_writing)
    driver.execute("BEGIN IMMEDIATE" if is_writing else "BEGIN")


def allow_writing(connection: PoolProxiedConnection, is_writing: bool = True) -> Any:
    """Let a connection write, or not, and return the driver's own."""
    driver: Any = connection.driver_connection
    if connection.info.get("is_writing") != is_writing:  # a pragma makes SQLite forget its prepared statements
        driver.execute(f"PRAGMA query_only = {'OFF' if is_writing else 'ON'}")
        connection.info["is_writing"] = is_writing
    return driver


def refuse_foreign(tables: Collection[str], place: str) -> None:
    """Refuse a database that has tables, and not the one that every registry has. Raises: RegistryError."""
    if tables and VERSION_TABLE not in tables:
        advice = "give the registry a database of its own, or on PostgreSQL a schema of its own"
        raise RegistryError(f"The database {place} is another program's: it has a table {min(tables)!r}; {advice}.")


class Prepared:
    """A statement as a driver takes it; each row gives values for the columns and parameters `names`."""

    def __init__(self, statement: ClauseElement, dialect: str, names: Sequence[str]) -> None:
        compiled: Any = statement.compile(dialect=_driver_dialect(dialect), column_keys=list(names))
        left_out = {column.name for column in getattr(compiled, "insert_prefetch", ()) or ()} - set(names)
        assert not left_out, f"no value for {left_out}"  # a default that only SQLAlchemy would fill in
        self.sql = str(compiled)
        convert: dict[str, Callable[[Any], Any]] = compiled._bind_processors
        self._constants = {name: value for name, value in compiled.params.items() if name not in names}
        for name in self._constants.keys() & convert.keys():
            self._constants[name] = convert[name](self._constants[name])
        self._convert = [(name, convert[name]) for name in names if name in convert]

    def values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Values of one row, as they are stored."""
        stored = {**self._constants, **row}
        for name, convert in self._convert:
            stored[name] = convert(stored[name])
        return stored


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

    def read(self, statement: Prepared, row: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Rows that a statement returns, as the driver gives them."""
        rows: list[tuple[Any, ...]] = self.run(statement, row).fetchall()
        return rows

    def run_many(self, statement: Prepared, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement once for each row."""
        if rows:
            self._cursor.executemany(statement.sql, [statement.values(row) for row in rows])

    def upsert(
        self, table: Table, columns: Sequence[Sequence[Any]], keys: tuple[str, ...], update: tuple[str, ...] = ()
    ) -> None:
        """Insert many rows, or update the columns `update` of those that are there.

        Args:
            columns: values of the table's columns but its `key`, as they are stored; of rows with the same natural key
                the last one counts. NaN is stored as NULL, and sooner written than None.
            keys: columns of the natural key, which are the first ones.
        """
        if not columns or not columns[0]:
            return
        if self.dialect != "sqlite":
            places = {key: place for place, key in enumerate(zip(*columns[: len(keys)], strict=True))}
            if len(places) < len(columns[0]):  # a server's statement cannot change a row twice
                columns = [[column[place] for place in places.values()] for column in columns]
            self._cursor.execute(_upsert_sql(self.dialect, table, keys, update, 0), [*map(_array, columns)])
            return
        width, done = len(columns), 0
        flat: list[Any] = [None] * (width * len(columns[0]))
        for place, column in enumerate(columns):
            flat[place::width] = column
        for size in _ROWS_AT_ONCE:
            sql = _upsert_sql(self.dialect, table, keys, update, size)
            while done + size * width <= len(flat):
                self._cursor.execute(sql, flat[done : done + size * width])
                done += size * width


@lru_cache
def _upsert_sql(dialect: str, table: Table, keys: tuple[str, ...], update: tuple[str, ...], number: int) -> str:
    """SQL that upserts rows: on SQLite so many of them, on a server any number, given as an array for each column."""
    columns = [column for column in table.columns if column.name != "key"]
    if dialect == "sqlite":
        row = f"({', '.join('?' * len(columns))})"
        rows = f"VALUES {', '.join([row] * number)}"
    else:
        types = (column.type.compile(_driver_dialect(dialect)) for column in columns)
        rows = f"SELECT * FROM unnest({', '.join(f'%s::{each}[]' for each in types)})"
    changes = ", ".join(f"{name} = excluded.{name}" for name in update)
    then = f"DO UPDATE SET {changes}" if update else "DO NOTHING"
    names = ", ".join(column.name for column in columns)
    return f"INSERT INTO {table} ({names}) {rows} ON CONFLICT ({', '.join(keys)}) {then}"


def _array(values: Sequence[Any]) -> str | Sequence[Any]:
    """Values of a column as a server's array: numbers as its text, which takes a tenth of the driver's time."""
    if isinstance(values[0], str):
        return list(values)
    different = values[:1] if values.count(values[0]) == len(values) else values  # as the series of a curve
    texts = ["NULL" if value is None or value != value else repr(value) for value in different]
    return f"{{{','.join(texts * (len(values) // len(texts)))}}}"


@lru_cache
def _driver_dialect(name: str) -> Dialect:
    """Dialect whose statements have parameters by name, as the driver takes them."""
    driver, style = ("sqlite", "named") if name == "sqlite" else ("postgresql+psycopg", "pyformat")
    make: Any = URL.create(driver).get_dialect()
    dialect: Dialect = make(paramstyle=style)
    return dialect
