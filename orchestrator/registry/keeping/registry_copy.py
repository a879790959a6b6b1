"""Copy of a registry: a SQLite file with all rows as they stood at one moment, its tables at the newest revision.

The registry itself is only read, whatever its revision: the copy is what is brought up to date. A copy can be cut down
to some runs, to be carried elsewhere.
"""

import sqlite3
from collections.abc import Collection
from pathlib import Path

from sqlalchemy import Engine, and_, delete, exists, select
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.errors import RegistryError
from orchestrator.registry.attempt_tables import AttemptRow, CodeDiffRow
from orchestrator.registry.database import Database
from orchestrator.registry.engines.database_errors import translate
from orchestrator.registry.engines.dialects import open_engine
from orchestrator.registry.engines.sqlite_engine import back_up
from orchestrator.registry.keeping.table_copy import copy_tables, reading_snapshot
from orchestrator.registry.keeping_tables import TrashRow, VersionRow
from orchestrator.registry.location import display_url, resolve_url
from orchestrator.registry.revisions import current_revision, refuse_unknown, upgrade_schema
from orchestrator.registry.tables import DatasetRow, ExperimentRow, LineageRow, ModelRow, RunDatasetRow, RunRow


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
    bring_up_to_date(path, str(source))


def bring_up_to_date(path: Path, place: str) -> None:
    """Bring the tables of a copy to the newest revision.

    Args:
        place: what messages call the registry that it is a copy of.

    Raises: RegistryError for a copy that a newer version of this package has made.
    """
    engine = open_engine(resolve_url(str(path)))
    try:
        upgrade_schema(engine, place)
    finally:
        engine.dispose()


def keep_runs(path: Path, run_ids: Collection[str]) -> None:
    """Drop from a copy all but some runs, with their trials, and what only the others used; the file shrinks."""
    copy = Database(str(path))
    with copy.session(writing=True) as session:
        others = set(session.scalars(select(RunRow.id).where(RunRow.parent_id.is_(None)))) - set(run_ids)
        for run_id in others:  # trials and all that belongs to a run go with it
            session.execute(delete(RunRow).where(RunRow.id == run_id))
        session.execute(delete(ModelRow).where(ModelRow.run_id.is_(None)))
        is_its = and_(ModelRow.name == VersionRow.name, ModelRow.version == VersionRow.version)
        session.execute(delete(VersionRow).where(~exists().where(is_its)))
        used = select(RunDatasetRow.fingerprint)
        session.execute(delete(DatasetRow).where(DatasetRow.fingerprint.not_in(used)))
        of_attempts = select(AttemptRow.diff_digest).where(AttemptRow.diff_digest.is_not(None))
        session.execute(delete(CodeDiffRow).where(CodeDiffRow.digest.not_in(of_attempts)))
        session.execute(delete(LineageRow).where(LineageRow.run_id.is_(None)))
        session.execute(delete(TrashRow))
        session.execute(delete(ExperimentRow).where(ExperimentRow.id.not_in(select(RunRow.experiment_id))))
    copy.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        connection.execute("VACUUM")
    connection.close()


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
