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

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Column, Connection, Engine, MetaData, String, Table, create_engine, insert, inspect, select

from orchestrator.errors import RegistryError
from orchestrator.registry.database_errors import is_of_database, translate
from orchestrator.registry.dialects import lock_until_commit
from orchestrator.registry.location import display_url, resolve_url
from orchestrator.registry.sqlite_engine import VERSION_TABLE, open_empty, open_file, refuse_foreign
from orchestrator.registry.tables import METADATA
from orchestrator.registry.write_transactions import Writers, WriteTransaction

FIRST_REVISION, NEWEST_REVISION = "0014", "0014"
MIGRATIONS = Path(__file__).with_name("migrations")
_VERSION = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))
_CONNECT_TIMEOUT_S = 10


def open_engine(url: URL, *, read_only: bool = False) -> Engine:
    """Make an engine for the URL; for SQLite, make the file's folder too, unless it is opened for reading alone.

    Raises: RegistryError.
    """
    if url.get_backend_name() == "sqlite":
        return open_file(Path(str(url.database)), read_only=read_only)
    options = {"connect_timeout": _CONNECT_TIMEOUT_S, "application_name": "orchestrator"}
    try:
        return create_engine(url, pool_pre_ping=True, hide_parameters=True, connect_args=options)
    except ImportError:  # an extra of the package
        needed = "A PostgreSQL registry needs psycopg; run: pip install 'bert-orchestrator[postgres]'"
        raise RegistryError(needed) from None


def _read_revision(connection: Connection, place: str) -> str | None:
    """Revision of the tables; None where there are none. Raises: RegistryError where they are another program's."""
    inspector = inspect(connection)
    if inspector.has_table(VERSION_TABLE):
        return connection.scalar(select(_VERSION.c.version_num))
    refuse_foreign(inspector.get_table_names(), place)
    return None


def _refuse_unknown(revision: str | None, place: str) -> None:
    """Refuse tables of a version that this one cannot upgrade or does not know. Raises: RegistryError."""
    if revision is None or FIRST_REVISION <= revision <= NEWEST_REVISION:
        return
    advice = "newer than this version knows; upgrade bert-orchestrator."
    if revision < FIRST_REVISION:
        advice = (
            "of an earlier version that this one does not read; read it with the version that wrote it, and begin "
            "another registry here."
        )
    raise RegistryError(f"The registry {place} is at revision {revision}, {advice}")


def _load_scripts() -> Callable[[Connection], None]:
    """Load Alembic and its scripts, which takes a second or more on a busy machine; returns what runs them."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(MIGRATIONS), version_locations=[str(MIGRATIONS)])
    scripts.get_heads()  # which imports every script

    def run(connection: Connection) -> None:
        with EnvironmentContext(Config(), scripts, fn=lambda found, _: scripts._upgrade_revs("head", found)) as steps:
            steps.configure(connection=connection, version_table=VERSION_TABLE, target_metadata=METADATA)
            steps.run_migrations()

    return run


class Database:
    """One database, opened on first use. Several threads may use it at once, each by connections of its own.

    Args:
        location: as `resolve_url` takes it.
        read_only: whether it is opened for reading alone: nothing is created or changed, and a database that is not
            there, or has no tables yet, reads as an empty one.
    """

    def __init__(self, location: str, *, read_only: bool = False) -> None:
        self.url = resolve_url(location)
        """URL, with its password: for other connections to the same database."""
        self.dialect = self.url.get_backend_name()
        """Kind of database: `sqlite` or `postgresql`."""
        self._read_only = read_only
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._writers: Writers | None = None
        """Writers to the database, once its tables have been checked."""

    def __str__(self) -> str:
        return display_url(self.url)

    @contextmanager
    def connection(self, *, writing: bool) -> Iterator[Connection]:
        """Open a connection in one transaction: committed at the end of the block, rolled back when the block raises.

        Args:
            writing: whether the block writes; the database refuses to write in one for reading, and SQLite takes
                no lock in it.

        Raises: RegistryUnavailableError where the database may answer again by itself, RegistryError for other errors.
        """
        with self._translated_errors():
            writers = self._checked(writing=writing)
            opened = writers.engine.connect().execution_options(writing=writing, postgresql_readonly=not writing)
            with opened as connection, connection.begin():
                yield connection
                if writing:
                    writers.forget_keys()  # of what the connection may have removed, before SQLite lets others write
            if writing:
                writers.forget_keys()  # and what others have found until a server's commit

    @contextmanager
    def transaction(self) -> Iterator[WriteTransaction]:
        """Open a transaction for writing by the driver itself, which costs a short one far less than SQLAlchemy does.

        Raises: as `connection`.
        """
        with self._translated_errors(), self._checked(writing=True).transaction() as transaction:
            yield transaction

    def open(self) -> None:
        """Connect, and create or check the tables, now rather than on first use."""
        with self._translated_errors():
            self._checked(writing=not self._read_only)

    def upgrade(self, before: Callable[[str], object] | None = None) -> str:
        """Bring the tables to the newest revision and return it; of several processes one does the work.

        Args:
            before: called with the revision of tables that are about to be changed, while other writers wait.
        """
        self._refuse_to_write()
        with self._translated_errors():
            found = self.current_revision()
            run = _load_scripts() if found not in (None, NEWEST_REVISION) else None  # before other writers must wait
            with self._open().execution_options(writing=True).begin() as connection:
                lock_until_commit(connection, VERSION_TABLE)
                revision = _read_revision(connection, str(self))
                _refuse_unknown(revision, str(self))
                if revision is None:
                    METADATA.create_all(connection)
                    _VERSION.create(connection)
                    connection.execute(insert(_VERSION), [{"version_num": NEWEST_REVISION}])
                elif revision != NEWEST_REVISION:
                    if before is not None:
                        before(revision)
                    (run or _load_scripts())(connection)
        return NEWEST_REVISION

    def current_revision(self) -> str | None:
        """Revision of the tables; None where there are no tables yet."""
        with self._translated_errors(), self._open().connect() as connection:
            return _read_revision(connection, str(self))

    def close(self) -> None:
        """Close every connection; the next use opens new ones."""
        with self._lock:
            if self._writers is not None:
                self._writers.close()
            if self._engine is not None:
                self._engine.dispose()
            self._engine = self._writers = None

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if is_of_database(error):
                raise translate(error, self.url) from error
            raise

    def _refuse_to_write(self) -> None:
        if self._read_only:
            raise RegistryError(f"The registry {self} is open for reading only.")

    def _checked(self, *, writing: bool) -> Writers:
        """Writers with the engine; the tables are made or checked once, before the first use."""
        if writing:
            self._refuse_to_write()
        if self._writers is not None:
            return self._writers
        revision, engine = self.current_revision(), self._open()
        _refuse_unknown(revision, str(self))
        if revision is None and self._read_only:
            engine = open_empty()
            METADATA.create_all(engine.execution_options(writing=True))
        elif revision is None:
            self.upgrade()
        elif revision != NEWEST_REVISION:
            raise RegistryError(
                f"The registry {self} is at an older revision ({revision}); back it up, then run: orchestrator db "
                "upgrade"
            )
        with self._lock:
            self._writers = self._writers or Writers(engine)
            return self._writers

    def _open(self) -> Engine:
        with self._lock:
            self._engine = self._engine or open_engine(self.url, read_only=self._read_only)
            return self._engine


class RegistryPart:
    """Attribute of `Registry` that writes and reads one subject."""

    def __init__(self, database: Database) -> None:
        self._database = database
