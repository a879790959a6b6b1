"""Copy of a registry: a SQLite file with all rows as they stood at one moment, its tables at the newest revision.

The registry itself is only read, whatever its revision: the copy is what is brought up to date.
"""

import sqlite3
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.errors import RegistryError
from orchestrator.registry.database import Database
from orchestrator.registry.engines.database_errors import translate
from orchestrator.registry.engines.dialects import open_engine
from orchestrator.registry.engines.sqlite_engine import back_up
from orchestrator.registry.keeping.table_copy import copy_tables, reading_snapshot
from orchestrator.registry.location import display_url, resolve_url
from orchestrator.registry.revisions import current_revision, refuse_unknown, upgrade_schema


def copy_registry(location: str, path: Path) -> None:
    """Write a copy of a registry, by a path or URL as `Registry` takes it; writers of the registry go on meanwhile.

    Raises: RegistryError where there is none, or a newer version of this package has made it.
    """
    source = Database(location, read_only=True)
    revision = source.current_revision()
    if revision is None:
        raise RegistryError(f"There is no registry at {source}; a first run makes it.")
    refuse_unknown(revision, str(source))
    source.close()
    url = resolve_url(location)
    try:
        if url.get_backend_name() == "sqlite":
            back_up(url, path)
        else:
            _copy_rows(open_engine(url, read_only=True), path, revision, display_url(url))
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise translate(error, url) from error
    copy = open_engine(resolve_url(str(path)))
    try:
        upgrade_schema(copy, str(source))
    finally:
        copy.dispose()


def _copy_rows(source: Engine, path: Path, revision: str, place: str) -> None:
    """Copy a server's rows into tables of the same revision, as one transaction sees them."""
    target = open_engine(resolve_url(str(path)))
    upgrade_schema(target, place)
    with reading_snapshot(source) as reading, target.execution_options(writing=True).begin() as writing:
        copy_tables(reading, writing)
    with target.connect() as connection:
        assert current_revision(connection, place) == revision
    target.dispose()
    source.dispose()
