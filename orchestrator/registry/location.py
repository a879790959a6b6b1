"""Location of a registry: a path, a URL, or `file:PATH` of a private file that holds the URL.

Passwords are kept out of everything that a person sees. SQLAlchemy is loaded where a URL is asked for: completion reads
a file without it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from orchestrator.base.errors import RegistryError
from orchestrator.base.settings import read_private

if TYPE_CHECKING:
    from sqlalchemy import URL

_NEEDED = "The registry needs a path to a .sqlite file, sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE."


def resolve_url(text: str) -> URL:
    """Turn a path, a URL or `file:PATH` into SQLAlchemy's URL. Raises: RegistryError where it is none of them."""
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    if text.startswith("file:"):
        path = text.removeprefix("file:").removeprefix("//")
        text = read_private(Path(path).expanduser(), "the registry's URL", RegistryError)
        if text.startswith("file:"):
            raise RegistryError(f"{path} should hold the registry's URL, not the name of another file.")
    try:
        url = make_url(text) if "://" in text else URL.create("sqlite", database=text)
    except (ArgumentError, ValueError):
        raise RegistryError(_NEEDED) from None
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    path = (url.database or "") if url.get_backend_name() == "sqlite" else ""
    if path.strip() in ("", ":memory:"):
        raise RegistryError(_NEEDED)
    return URL.create("sqlite", database=str(Path(path).expanduser().absolute()))


def display_url(url: URL) -> str:
    """The URL for messages: the path of a SQLite file, or the address of a server without its secrets."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    hidden = url.set(drivername="postgresql").difference_update_query(_secrets(url))
    return hidden.render_as_string(hide_password=True)


def without_secrets(text: str, url: URL) -> str:
    """`text` with `***` in place of every secret of the URL."""
    for secret in filter(None, (url.password, *chain(*_secrets(url).values()))):
        text = text.replace(secret, "***")
    return text


def _secrets(url: URL) -> dict[str, Sequence[str]]:
    return {key: values for key, values in url.normalized_query.items() if "pass" in key.lower()}


BUSY_TIMEOUT_S = 30.0


def reading_address(path: Path) -> str:
    """Address by which SQLite opens a file for reading: as others may be writing it, or else as it rests.

    Beside a file with a write-ahead log SQLite makes a file that its readers share. In a folder that cannot be written
    nobody writes the log either, so that the file alone holds everything.

    Raises: RegistryError where a log is there that cannot be read.
    """
    address = f"file:{quote(os.fsencode(path))}"
    try:
        with closing(sqlite3.connect(f"{address}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_S)) as probe:
            probe.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            log = path.with_name(f"{path.name}-wal")
            if log.exists() and log.stat().st_size:
                raise RegistryError(
                    f"The registry {path} has its newest part in {log.name}, which cannot be read in a folder that "
                    "cannot be written; copy both files to another folder, and name that copy with --registry."
                ) from error
            return f"{address}?mode=ro&immutable=1"
    return f"{address}?mode=rw"  # where another error is met again, in its place
