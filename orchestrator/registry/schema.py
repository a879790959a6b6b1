"""The tables' revisions: Alembic scripts inside the package, run without an ini file or an env.py.

An empty database is brought to the newest revision when first used. An older one waits for `orchestrator db upgrade`,
a newer one is refused.
"""

from pathlib import Path

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect

from orchestrator.errors import RegistryError
from orchestrator.registry.dialects import lock_until_commit
from orchestrator.registry.tables import Row

VERSION_TABLE = "registry_revision"


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(Path(__file__).with_name("migrations")))


def current_revision(connection: Connection) -> str | None:
    """The revision the tables are at; None where there are none yet."""
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def ensure_schema(engine: Engine, shown: str) -> None:
    """Create the tables in an empty database; refuse any revision but the newest. Raises: RegistryError."""
    scripts = _scripts()
    with engine.connect() as connection:
        revision = current_revision(connection)
    if revision is None:
        upgrade_schema(engine, shown)
    elif revision != scripts.get_current_head():
        _refuse_unknown(scripts, revision, shown)
        raise RegistryError(
            f"The registry {shown} is at an older revision ({revision}); back it up, then run: orchestrator db upgrade"
        )


def upgrade_schema(engine: Engine, shown: str) -> str:
    """Bring the tables to the newest revision, one process at a time; returns that revision. Raises: RegistryError."""
    scripts = _scripts()
    with engine.execution_options(writing=True).begin() as connection:
        lock_until_commit(connection, VERSION_TABLE)
        revision = current_revision(connection)
        _refuse_unknown(scripts, revision, shown)
        if revision is None:
            _refuse_foreign(connection, shown)
        _run(connection, scripts)
    head = scripts.get_current_head()
    assert head is not None
    return head


def _run(connection: Connection, scripts: ScriptDirectory) -> None:
    environment = EnvironmentContext(
        Config(),
        scripts,
        fn=lambda revision, _: scripts._upgrade_revs("head", revision),
    )
    with environment:
        environment.configure(connection=connection, version_table=VERSION_TABLE, target_metadata=Row.metadata)
        environment.run_migrations()


def _refuse_unknown(scripts: ScriptDirectory, revision: str | None, shown: str) -> None:
    known = {script.revision for script in scripts.walk_revisions()}
    if revision is not None and revision not in known:
        raise RegistryError(
            f"The registry {shown} is at revision {revision}, newer than this version knows; upgrade bert-orchestrator."
        )


def _refuse_foreign(connection: Connection, shown: str) -> None:
    taken = sorted(set(inspect(connection).get_table_names()) & set(Row.metadata.tables))
    if taken:
        raise RegistryError(
            f"The database {shown} has a table {taken[0]!r} that is not the registry's; give a database of its own."
        )
