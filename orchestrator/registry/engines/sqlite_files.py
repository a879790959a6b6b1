"""Files of SQLite, as the standard library opens them for reading: without SQLAlchemy, which takes long to load."""

import sqlite3
from pathlib import Path
from urllib.parse import quote

from orchestrator.errors import RegistryError

BUSY_TIMEOUT_S = 30.0


def reading_address(path: Path) -> str:
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
