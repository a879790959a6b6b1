"""Engines for SQLite: files opened for writing or for reading alone, and an empty registry in memory.

A file has a write-ahead log, so that readers and a writer do not wait for one another. Every writing transaction begins
with `BEGIN IMMEDIATE`, which takes the write lock before it reads; a reading one refuses to write (`query_only`).
SQLite lets writers wait for one another by itself: of 16 that write all the time 99 of 100 transactions wait for a few
milliseconds at most, and a few for seconds.
"""

import math
import os
import sqlite3
import time
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, PoolProxiedConnection, QueuePool, StaticPool, create_engine, event

from orchestrator.errors import RegistryError
from orchestrator.registry.location import BUSY_TIMEOUT_S, reading_address

VERSION_TABLE = "registry_revision"
"""Table that every registry has: it holds the revision of the others."""


def open_file(path: Path, *, read_only: bool) -> Engine:
    """Make an engine for a file, and its folder too; where it is only read, a missing file reads as an empty registry.

    Raises: RegistryError.
    """
    if os.path.isdir(path):  # noqa: PTH112 - False, as below, of a path that cannot be asked for
        raise RegistryError(f"The registry {path} is a folder; name a file in it, {path / 'registry.sqlite'} say.")
    if read_only and not os.path.exists(path):  # noqa: PTH110
        return open_empty()
    if not read_only:
        with suppress(OSError):  # which SQLite meets as well
            path.parent.mkdir(parents=True, exist_ok=True)
    address = reading_address(path) if read_only else str(path)
    connect = partial(sqlite3.connect, address, uri=read_only, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    # No thread waits for another's connection: each may keep one for writing (`Writers`).
    return _engine(None if read_only else path, creator=connect, poolclass=QueuePool, max_overflow=-1)


def open_empty() -> Engine:
    """Make an engine for a database in memory, without tables."""
    return _engine(None, connect_args={"check_same_thread": False}, poolclass=StaticPool)


def _engine(written: Path | None, **options: Any) -> Engine:
    engine = create_engine("sqlite://", hide_parameters=True, **options)
    event.listen(engine, "connect", partial(_set_up, written=written))
    event.listen(engine, "begin", _begin)
    return engine


def back_up(url: URL, target: Path) -> None:
    """Write a copy of a file as it stands at one moment, its write-ahead log included; writers need not stop."""
    with (
        closing(sqlite3.connect(reading_address(Path(str(url.database))), uri=True, timeout=BUSY_TIMEOUT_S)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)


def _set_up(connection: sqlite3.Connection, _record: Any, *, written: Path | None) -> None:
    """Leave the beginning of transactions to `_begin`, and define the functions that PostgreSQL has by itself."""
    connection.isolation_level = None
    # 32 MB of pages: those of a big registry lie apart, and with SQLite's 2 MB a board reads most of them repeatedly.
    connection.execute("PRAGMA cache_size = -32768")
    connection.create_function("folded", 1, lambda text: text and text.lower(), deterministic=True)
    connection.create_aggregate("stddev_samp", 1, partial(_Aggregate, _deviation))
    connection.create_aggregate("median", 1, partial(_Aggregate, _median))
    if written is None:
        return
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")
    # Pages of the log between two copies into the file, 16 MB: four times SQLite's own, so that the pages which every
    # trial changes are copied less often.
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        refuse_foreign([name for (name,) in tables], str(written))  # before the switch, which is written into the file
        _switch_to_wal(connection)


class _Aggregate:
    """Aggregate of the numbers of a group, NULLs aside."""

    def __init__(self, compute: Callable[[list[float]], float | None]) -> None:
        self._numbers: list[float] = []
        self._compute = compute

    def step(self, number: Any, /) -> None:
        if number is not None:
            self._numbers.append(number)

    def finalize(self) -> Any:
        return self._compute(self._numbers)


def _deviation(numbers: list[float]) -> float | None:
    mean = sum(numbers) / max(len(numbers), 1)
    if len(numbers) < 2 or not math.isfinite(mean):
        return None
    return math.sqrt(sum((each - mean) * (each - mean) for each in numbers) / (len(numbers) - 1))


def _median(numbers: list[float]) -> float | None:
    ordered, number = sorted(numbers), len(numbers)
    return (ordered[(number - 1) // 2] + ordered[number // 2]) / 2 if ordered else None


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
        raise RegistryError(
            f"The database {place} is another program's: it has a table {min(tables)!r} that is not the "
            "registry's; give the registry a database of its own, or on PostgreSQL a schema of its own."
        )
