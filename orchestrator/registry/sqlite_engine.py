"""Engines for SQLite: files opened for writing or for reading alone, and an empty registry in memory.

A file has a write-ahead log, so that readers and a writer do not wait for one another. Every writing transaction begins
with `BEGIN IMMEDIATE`, which takes the write lock before it reads; a reading one refuses to write (`query_only`).
SQLite lets writers wait for one another by itself: of 16 that write all the time 99 of 100 transactions wait for a few
milliseconds at most, and a few for seconds.
"""

import math
import sqlite3
import time
from collections.abc import Collection
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event

from orchestrator.errors import RegistryError
from orchestrator.registry.location import BUSY_TIMEOUT_S, reading_address

VERSION_TABLE = "registry_revision"
"""Table that every registry has: it holds the revision of the others."""


def open_for_writing(url: URL) -> Engine:
    """Make an engine for a file, and the file's folder too. Raises: RegistryError, OSError."""
    path = file_of(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", partial(_prepare, path=path))
    event.listen(engine, "begin", _begin)
    return engine


def open_for_reading(url: URL) -> Engine:
    """Make an engine for a file that may lie where nothing can be written; a missing file reads as an empty registry.

    Raises: RegistryError.
    """
    path = file_of(url)
    if not path.exists():
        return open_empty()
    address = reading_address(path)

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)

    engine = create_engine(url, hide_parameters=True, creator=connect)
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    return engine


def open_empty() -> Engine:
    """Make an engine for a database in memory, without tables."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    return engine


def back_up(url: URL, target: Path) -> None:
    """Write a copy of a file as it stands at one moment, its write-ahead log included; writers need not stop."""
    with (
        closing(sqlite3.connect(reading_address(file_of(url)), uri=True, timeout=BUSY_TIMEOUT_S)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)


def file_of(url: URL) -> Path:
    """Path of a URL's file. Raises: RegistryError where that is a folder."""
    path = Path(str(url.database))
    if path.is_dir():
        raise RegistryError(f"The registry {path} is a folder; name a file in it, {path / 'registry.sqlite'} say.")
    return path


def _set_up(connection: sqlite3.Connection, _record: Any) -> None:
    """Leave the beginning of transactions to `_begin`, and define the functions that PostgreSQL has by itself."""
    connection.isolation_level = None
    # 32 MB of pages: those of a big registry lie apart, and with SQLite's 2 MB a board reads most of them again and
    # again.
    connection.execute("PRAGMA cache_size = -32768")
    connection.create_function("folded", 1, lambda text: text and text.lower(), deterministic=True)
    connection.create_aggregate("stddev_samp", 1, _Deviation)
    connection.create_aggregate("median", 1, _Median)


class _Numbers:
    """Aggregate of the numbers of a group; NULLs aside."""

    def __init__(self) -> None:
        self._numbers: list[float] = []

    def step(self, number: Any, /) -> None:
        if number is not None:
            self._numbers.append(number)


class _Deviation(_Numbers):
    def finalize(self) -> Any:
        number = len(self._numbers)
        mean = sum(self._numbers) / max(number, 1)
        if number < 2 or not math.isfinite(mean):
            return None
        return math.sqrt(sum((each - mean) * (each - mean) for each in self._numbers) / (number - 1))


class _Median(_Numbers):
    def finalize(self) -> Any:
        ordered, number = sorted(self._numbers), len(self._numbers)
        return (ordered[(number - 1) // 2] + ordered[number // 2]) / 2 if ordered else None


def _prepare(connection: sqlite3.Connection, record: Any, path: Path) -> None:
    _set_up(connection, record)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")
    # Pages of the log between two copies into the file, 16 MB: four times SQLite's own, so that the pages which every
    # trial changes are copied less often.
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        _refuse_foreign_file(connection, path)  # before the switch, which is written into the file
        _switch_to_wal(connection)


def _refuse_foreign_file(connection: sqlite3.Connection, path: Path) -> None:
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    refuse_foreign([name for (name,) in names], str(path))


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
    driver: Any = connection.connection.driver_connection
    is_writing, known = bool(connection.get_execution_options().get("writing")), connection.connection.info
    if known.get("is_writing") != is_writing:  # a pragma makes SQLite forget its prepared statements
        driver.execute(f"PRAGMA query_only = {'OFF' if is_writing else 'ON'}")
        known["is_writing"] = is_writing
    driver.execute("BEGIN IMMEDIATE" if is_writing else "BEGIN")


def refuse_foreign(tables: Collection[str], place: str) -> None:
    """Refuse a database that has tables, and not the one that every registry has. Raises: RegistryError.

    Args:
        tables: names of all tables of the database.
        place: what messages call the database.
    """
    if tables and VERSION_TABLE not in tables:
        raise RegistryError(
            f"The database {place} is another program's: it has a table {min(tables)!r} that is not the "
            "registry's; give the registry a database of its own, or on PostgreSQL a schema of its own."
        )
