"""Location of a registry: a path, a URL, or `file:PATH` of a private file that holds the URL.

Passwords are kept out of everything that a person sees: `display_url` hides them, and errors about a broken URL do not
repeat it.

SQLAlchemy is loaded where a URL is asked for: completion reads a file without it.
"""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from orchestrator.errors import RegistryError

if TYPE_CHECKING:
    from sqlalchemy import URL

_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_SUPPORTED = "a path to a .sqlite file, sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE"


def resolve_url(text: str) -> URL:
    """Turn a path, a URL or `file:PATH` into SQLAlchemy's URL. Raises: RegistryError where it is none of them."""
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    if text.startswith("file:"):
        text = _read_private(Path(text.removeprefix("file:").removeprefix("//")).expanduser())
    if not text.strip():
        raise RegistryError(f"The registry's URL is empty; give {_SUPPORTED}.")
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text).expanduser().absolute()))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise RegistryError(f"The registry's URL cannot be understood; give {_SUPPORTED}.") from None
    if url.drivername in _POSTGRESQL:
        return url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise RegistryError(f"The registry cannot live in {url.drivername!r}; give {_SUPPORTED}.")
    if not url.database or url.database == ":memory:":
        raise RegistryError("The registry needs a file of its own: sqlite:///PATH, or simply the path.")
    return URL.create("sqlite", database=str(Path(url.database).expanduser().absolute()))


def _read_private(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise RegistryError(f"{path}, which should hold the registry's URL, cannot be read: {reason}.") from None
    if stat.S_IMODE(mode) & 0o077:
        raise RegistryError(f"{path} holds the registry's URL and others can read it; run: chmod 600 {path}")
    if text.startswith("file:"):
        raise RegistryError(f"{path} should hold the registry's URL, not the name of another file.")
    return text


def display_url(url: URL) -> str:
    """The URL for messages: the path of a SQLite file, or the address of a server without its secrets."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    secret = [key for key in url.query if "pass" in key.lower()]
    return url.set(drivername="postgresql").difference_update_query(secret).render_as_string(hide_password=True)


def without_secrets(text: str, url: URL) -> str:
    """`text` with `***` in place of every secret of the URL."""
    secrets = [url.password, *(value for key, value in url.query.items() if "pass" in key.lower())]
    for secret in secrets:
        for word in (secret,) if isinstance(secret, str) else secret or ():
            text = text.replace(word, "***") if word else text
    return text


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
