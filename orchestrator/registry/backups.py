"""Backups of a registry, made while others write: whole or not at all, and read once before they count.

A SQLite file is copied by SQLite itself, a server's tables go into an archive of `pg_dump`.
"""

import logging
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import URL, make_url, text

from bert_core.checkpoints.manifest import atomic_write
from orchestrator.base.errors import InputError, RegistryError
from orchestrator.registry.connections import open_engine
from orchestrator.registry.database import Database
from orchestrator.registry.location import BUSY_TIMEOUT_S, display_url, reading_address, without_secrets

logger = logging.getLogger(__name__)


def back_up_registry(location: str, path: Path, *, overwrite: bool = False) -> str:
    """Write a copy of a registry to a file while writers go on; returns its form, `sqlite` or `pg_dump`.

    Raises: RegistryError where there is no registry, or it cannot be read; InputError where the file cannot be written.
    """
    with closing(Database(location, read_only=True)) as database:
        database.refuse_missing()
    is_file = database.dialect == "sqlite"
    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise InputError(f"{path} cannot be written; name a file in a folder that is there and is yours")
    if is_file and path.exists() and path.samefile(str(database)):
        raise InputError(f"{path} is the registry itself; name another file")
    if path.exists() and not overwrite:
        raise InputError(f"{path} is there already; name another file, or give --overwrite")
    _copy(database.url, path)
    return "sqlite" if is_file else "pg_dump"


def back_up_before_migration(url: URL, revision: str, folder: Path | None) -> Path:
    """Copy a registry beside a SQLite file, or else into `folder`, named after revision and time; returns where.

    Raises: RegistryError, which says that nothing was changed.
    """
    source = Path(url.database or "registry")
    place = source.parent if url.get_backend_name() == "sqlite" else folder
    stays = f"The registry {display_url(url)} stays at revision {revision}"
    if place is None:
        raise RegistryError(f"{stays}: name the folder for its backup, or say that none is wanted.")
    path = place / f"{source.name}.{revision}-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.backup"
    try:
        place.mkdir(parents=True, exist_ok=True)
        _copy(url, path)
    except (OSError, sqlite3.Error, RegistryError) as error:
        cause = str(error).rstrip(".")
        raise RegistryError(f"{stays}: no backup could be made in {place} ({cause}); or give --no-backup.") from error
    logger.info(f"the registry as it was, at revision {revision}, is kept in {path}")
    return path


def _copy(url: URL, path: Path) -> None:
    """Write a copy of a registry, whole or not at all."""
    copy = copy_file if url.get_backend_name() == "sqlite" else _dump
    atomic_write(path, lambda temporary: copy(url, temporary))


def copy_file(url: URL, path: Path) -> None:
    """Copy a SQLite file and its log, as both stand at one moment, into one file, and check that; writers go on."""
    address = reading_address(Path(str(url.database)))
    with (
        closing(sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S)) as source,
        closing(sqlite3.connect(path)) as copy,
    ):
        source.backup(copy)
    with closing(sqlite3.connect(path)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")
        problem = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise RegistryError(f"The registry {url.database} is damaged ({problem}); restore it from a backup.")
    shutil.copymode(str(url.database), path)


def _dump(url: URL, path: Path) -> None:
    """Have `pg_dump` write the registry's schema; the password goes by the environment, which others cannot read."""
    program = shutil.which("pg_dump")
    if program is None:
        needed = "pg_dump, which is not on this machine; install PostgreSQL's client programs"
        raise RegistryError(f"The registry {display_url(url)} is backed up by {needed}.")
    engine = open_engine(url, read_only=True)
    with engine.connect() as connection:
        schema = str(connection.scalar(text("SELECT current_schema()")))
    engine.dispose()
    plain = make_url(display_url(url)).set(password=None).render_as_string(hide_password=False)
    options = ["--format=custom", "--no-owner", "--no-privileges", "--no-password", f"--schema={schema}"]
    done = subprocess.run(
        [program, *options, f"--file={path}", f"--dbname={plain}"],
        env={**os.environ, **({"PGPASSWORD": url.password} if url.password else {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        cause = without_secrets((done.stderr.strip() or "no message").splitlines()[-1], url)
        raise RegistryError(f"pg_dump could not back up {display_url(url)}: {cause}")
