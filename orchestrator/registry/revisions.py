"""Revisions of the tables: Alembic scripts inside the package, run without an ini file or an env.py.

An empty database gets the tables of the metadata, at the newest revision, when it is first used; one with the tables of
another program is refused. An older revision is refused until a person runs `orchestrator db upgrade`, which runs the
scripts after it; one from before the first script and a newer one are refused. Alembic is imported only when scripts
must run, so that commands start fast.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    Text,
    insert,
    inspect,
    literal_column,
    select,
    table,
)

from orchestrator.errors import RegistryError
from orchestrator.registry.engines.dialects import lock_until_commit
from orchestrator.registry.engines.sqlite_engine import VERSION_TABLE, open_empty, refuse_foreign
from orchestrator.registry.tables import METADATA

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

NEWEST_REVISION = "0014"
MIGRATIONS = Path(__file__).with_name("migrations")


def current_revision(connection: Connection, place: str) -> str | None:
    """Revision of the tables in the database; None where there are no tables yet.

    Args:
        place: what messages call the database.

    Raises: RegistryError where the tables are those of another program.
    """
    inspector = inspect(connection)
    if not inspector.has_table(VERSION_TABLE):
        refuse_foreign(inspector.get_table_names(), place)
        return None
    return connection.scalar(select(literal_column("version_num", Text)).select_from(table(VERSION_TABLE)))


def ensure_schema(engine: Engine, place: str) -> None:
    """Create the tables in an empty database; refuse any revision but the newest.

    Args:
        place: what messages call the database.

    Raises: RegistryError.
    """
    if not has_tables(engine, place):
        upgrade_schema(engine, place)


def has_tables(engine: Engine, place: str) -> bool:
    """Whether there are tables. Raises: RegistryError where these are not at the newest revision."""
    with engine.connect() as connection:
        revision = current_revision(connection, place)
    if revision in (None, NEWEST_REVISION):
        return revision is not None
    refuse_unknown(revision, place)
    raise RegistryError(
        f"The registry {place} is at an older revision ({revision}); back it up, then run: orchestrator db upgrade"
    )


def empty_schema() -> Engine:
    """Make the tables of an empty registry in memory, for who reads where there is none."""
    engine = open_empty()
    METADATA.create_all(engine.execution_options(writing=True))
    return engine


def upgrade_schema(engine: Engine, place: str, *, before: Callable[[str], object] | None = None) -> str:
    """Bring the tables to the newest revision, one process at a time; returns it.

    Args:
        before: called with the revision of tables that are about to be changed, while other writers wait.

    Alembic and its scripts are loaded before the lock is taken, which takes a second or more on a busy machine: all
    other writers wait meanwhile.

    Raises: RegistryError.
    """
    with engine.connect() as connection:
        found = current_revision(connection, place)
    scripts = _load_scripts() if found not in (None, NEWEST_REVISION) else None
    with engine.execution_options(writing=True).begin() as connection:
        lock_until_commit(connection, VERSION_TABLE)
        revision = current_revision(connection, place)
        if revision is None:
            METADATA.create_all(connection)
            version = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))
            version.create(connection)
            connection.execute(insert(version), [{"version_num": NEWEST_REVISION}])
        elif revision != NEWEST_REVISION:
            refuse_unknown(revision, place)
            if before is not None:
                before(revision)
            _run_scripts(connection, scripts or _load_scripts())
    return NEWEST_REVISION


def _load_scripts() -> "ScriptDirectory":
    import alembic.runtime.environment  # noqa: F401
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(MIGRATIONS))
    scripts.get_heads()  # which imports every script
    return scripts


def _run_scripts(connection: Connection, scripts: "ScriptDirectory") -> None:
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext

    steps = EnvironmentContext(Config(), scripts, fn=lambda revision, _: scripts._upgrade_revs("head", revision))
    with steps:
        steps.configure(connection=connection, version_table=VERSION_TABLE, target_metadata=METADATA)
        steps.run_migrations()


def refuse_unknown(revision: str | None, place: str) -> None:
    """Refuse tables of a version that this one cannot upgrade or does not know. Raises: RegistryError."""
    if revision in (None, NEWEST_REVISION):
        return
    known = {script.revision for script in _load_scripts().walk_revisions()}
    if revision in known:
        return
    if revision < min(known):
        raise RegistryError(
            f"The registry {place} is at revision {revision}, of an earlier version that this one does not read; read "
            "it with the version that wrote it, and begin another registry here."
        )
    raise RegistryError(
        f"The registry {place} is at revision {revision}, newer than this version knows; upgrade bert-orchestrator."
    )
