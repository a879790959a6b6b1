"""Engines for SQLite: files opened for writing or for reading alone, and an empty registry in memory.

A file has a write-ahead log, so that readers and a writer do not wait for one another. Every writing transaction begins
with `BEGIN IMMEDIATE`; a reading one refuses to write (`query_only`).
"""

import logging
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event
from sqlalchemy.exc import OperationalError

from orchestrator.errors import RegistryError

BUSY_TIMEOUT_S = 30.0
SAY_AFTER_S = 3.0
"""Time after which a person is told that another process holds the file, and that this one waits."""
_WAS_TOLD = "was told of a wait"
logger = logging.getLogger(__name__)


def open_for_writing(url: URL) -> Engine:
    """Make an engine for a file, and the file's folder too. Raises: RegistryError, OSError."""
    path = _file(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, hide_parameters=True, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def open_for_reading(url: URL) -> Engine:
    """Make an engine for a file that may lie where nothing can be written; a missing file reads as an empty registry.

    Raises: RegistryError.
    """
    path = _file(url)
    if not path.exists():
        return open_empty()
    address = _address(path)

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)

    engine = create_engine(url, hide_parameters=True, creator=connect)
    event.listen(engine, "connect", _leave_transactions_to_begin)
    event.listen(engine, "begin", _begin)
    return engine


def open_empty() -> Engine:
    """Make an engine for a database in memory, without tables."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    event.listen(engine, "connect", _leave_transactions_to_begin)
    event.listen(engine, "begin", _begin)
    return engine


def back_up(url: URL, target: Path) -> None:
    """Write a copy of a file as it stands at one moment, its write-ahead log included; writers need not stop."""
    with (
        closing(sqlite3.connect(_address(_file(url)), uri=True, timeout=BUSY_TIMEOUT_S)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)


def _file(url: URL) -> Path:
    path = Path(str(url.database))
    if path.is_dir():
        raise RegistryError(f"The registry {path} is a folder; name a file in it, {path / 'registry.sqlite'} say.")
    return path


def _address(path: Path) -> str:
    """Address by which SQLite opens a file for reading."""
    return f"file:{quote(str(path))}?{_mode(path)}"


def _mode(path: Path) -> str:
    """Find out how a file is opened for reading: as others may be writing it, or, where that cannot be, as it rests.

    Beside a file with a write-ahead log SQLite makes a file that its readers share. In a folder that cannot be written
    nobody writes the log either, so that the file alone holds everything.

    Raises: RegistryError where a log is there that cannot be read.
    """
    try:
        probe = sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_S)
        try:
            probe.execute("PRAGMA schema_version").fetchone()
        finally:
            probe.close()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            return "mode=rw"  # to fail again, with the error in its place
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise RegistryError(
                f"The registry {path} has its newest part in {log.name}, which cannot be read in a folder that cannot "
                "be written; copy both files to another folder, and name that copy with --registry."
            ) from error
        return "mode=ro&immutable=1"
    except sqlite3.DatabaseError:
        return "mode=rw"  # no database: to fail again, with the error in its place
    return "mode=rw"


def _leave_transactions_to_begin(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where _begin says, not where Python's driver guesses


def _prepare(connection: sqlite3.Connection, record: Any) -> None:
    _leave_transactions_to_begin(connection, record)
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


def _begin(connection: Connection) -> None:
    writing = connection.get_execution_options().get("writing")
    connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if writing else 'ON'}")
    if not writing:
        connection.exec_driver_sql("BEGIN")
        return
    wait_s = BUSY_TIMEOUT_S - SAY_AFTER_S
    try:
        _set_timeout(connection, SAY_AFTER_S)
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        if not connection.info.get(_WAS_TOLD):  # whoever tries for an hour says so once
            place = connection.engine.url.database
            logger.warning(f"waiting: another process holds the registry {place}; it is waited for {wait_s:.0f} s more")
        connection.info[_WAS_TOLD] = True
        _set_timeout(connection, wait_s)
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        connection.info[_WAS_TOLD] = False
    finally:
        _set_timeout(connection, BUSY_TIMEOUT_S)


def _set_timeout(connection: Connection, timeout_s: float) -> None:
    """Set how long SQLite waits for another process's lock."""
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(1000 * timeout_s)}")
