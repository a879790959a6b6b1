"""One database: its tables at the newest revision, and the one context manager that commits, rolls back and translates
errors.

On SQLite every writing transaction begins with `BEGIN IMMEDIATE` (`sqlite_engine.py`): it takes the write lock before
it reads, so that no other writer can come between. What is written all the time goes past SQLAlchemy to the driver
(`write_transactions.py`), under the same rules. With `synchronous = NORMAL` a killed process loses nothing; a
power cut can lose the last transactions.

An empty database gets the tables of the metadata when it is first used; one with another program's tables is refused.
An older revision is refused until a person runs `orchestrator db upgrade`, which runs the Alembic scripts after it; one
from before the first script and a newer one are refused. Alembic is imported only when scripts must run.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import (
    URL,
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
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.errors import InputError, RegistryError
from orchestrator.registry.database_errors import translate
from orchestrator.registry.dialects import lock_until_commit, open_engine
from orchestrator.registry.location import display_url, resolve_url
from orchestrator.registry.sqlite_engine import VERSION_TABLE, open_empty, refuse_foreign
from orchestrator.registry.tables import METADATA
from orchestrator.registry.write_transactions import (
    ServerWriters,
    SqliteWriters,
    WriteTransaction,
    as_sqlalchemy_error,
)

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

    scripts = ScriptDirectory(str(MIGRATIONS), version_locations=[str(MIGRATIONS)])
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


_OUT_OF_RANGE = "22003"
"""SQLSTATE of a number that its column cannot hold (PostgreSQL's documentation, appendix A)."""
_TOO_LARGE = "A number is larger than the registry holds: a seed or step from 2**63 on, a parameter from 1.8e308 on."


class Database:
    """One database, opened on first use. Several threads may use it at once, each by connections of its own.

    Args:
        location: as `resolve_url` takes it.
        read_only: whether it is opened for reading alone: nothing is created or changed, and a database that is not
            there, or has no tables yet, reads as an empty one.
    """

    def __init__(self, location: str, *, read_only: bool = False) -> None:
        self._url = resolve_url(location)
        self._read_only = read_only
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._checked: dict[bool, Engine] = {}
        self._writers: SqliteWriters | ServerWriters | None = None

    def __str__(self) -> str:
        return display_url(self._url)

    @property
    def dialect(self) -> str:
        """Kind of database: `sqlite` or `postgresql`."""
        return self._url.get_backend_name()

    @property
    def url(self) -> URL:
        """URL, with its password: for other connections to the same database."""
        return self._url

    @contextmanager
    def connection(self, *, writing: bool) -> Iterator[Connection]:
        """Open a connection in one transaction: committed at the end of the block, rolled back when the block raises.

        Args:
            writing: whether the block writes; the database refuses to write in one for reading, and SQLite takes
                no lock in it.

        Raises: RegistryUnavailableError where the database may answer again by itself, RegistryError for other errors.
        """
        with (
            self._translated_errors(),
            self._checked_engine(writing).begin() as connection,
        ):
            yield connection
            if writing and self._writers is not None:
                self._writers.forget_keys()  # of what the connection may have removed

    @contextmanager
    def transaction(self) -> Iterator[WriteTransaction]:
        """Open a transaction for writing by the driver itself, which costs a short one far less than SQLAlchemy does.

        Raises: as `connection`.
        """
        with self._translated_errors(), (self._writers or self._open_writers()).transaction() as transaction:
            yield transaction

    def open(self) -> None:
        """Connect, and create or check the tables, now rather than on first use."""
        with self._translated_errors():
            self._checked_engine(writing=not self._read_only)

    def upgrade(self, before: Callable[[str], object] | None = None) -> str:
        """Bring the tables to the newest revision and return it; of several processes one does the work.

        Args:
            before: called with the revision of tables that are about to be changed, while other writers wait.
        """
        if self._read_only:
            raise RegistryError(f"The registry {self} is open for reading only.")
        with self._translated_errors():
            return upgrade_schema(self._open(), str(self), before=before)

    def current_revision(self) -> str | None:
        """Revision of the tables; None where there are no tables yet."""
        with self._translated_errors(), self._open().connect() as connection:
            return current_revision(connection, str(self))

    def close(self) -> None:
        """Close every connection; the next use opens new ones."""
        with self._lock:
            if self._writers is not None:
                self._writers.close()
            self._writers = None
            for engine in (self._engine, *self._checked.values()):
                if engine is not None:
                    engine.dispose()
            self._engine, self._checked = None, {}

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except OverflowError as error:
            raise InputError(_TOO_LARGE) from error
        except SQLAlchemyError as error:
            if getattr(getattr(error, "orig", None), "sqlstate", None) == _OUT_OF_RANGE:
                raise InputError(_TOO_LARGE) from error
            raise translate(error, self._url) from error
        except sqlite3.Error as error:  # of the driver
            raise translate(as_sqlalchemy_error(error, sqlite3.Error), self._url) from error

    def _open_writers(self) -> SqliteWriters | ServerWriters:
        engine = self._checked_engine(writing=True)
        with self._lock:
            if self._writers is None:
                self._writers = SqliteWriters(engine) if self.dialect == "sqlite" else ServerWriters(engine)
            return self._writers

    def _checked_engine(self, writing: bool) -> Engine:
        """Engine for reading or for writing; its tables are checked once, before the first use."""
        if writing and self._read_only:
            raise RegistryError(f"The registry {self} is open for reading only.")
        if not self._checked:
            engine = self._open()
            if not self._read_only:
                ensure_schema(engine, str(self))
            elif not has_tables(engine.execution_options(postgresql_readonly=True), str(self)):
                engine = empty_schema()
            self._checked = {
                writes: engine.execution_options(writing=writes, postgresql_readonly=not writes)
                for writes in (True, False)
            }
        return self._checked[writing]

    def _open(self) -> Engine:
        with self._lock:
            if self._engine is None:
                try:
                    self._engine = open_engine(self._url, read_only=self._read_only)
                except OSError as error:
                    raise translate(error, self._url) from error
            return self._engine


class RegistryPart:
    """Attribute of `Registry` that writes and reads one subject."""

    def __init__(self, database: Database) -> None:
        self._database = database
