"""One database: its tables at the newest revision, transactions that commit or roll back, errors in a person's words.

On SQLite, with `synchronous = NORMAL`, a killed process loses nothing; a power cut can lose the last transactions.
An empty database gets the tables of the metadata when it is first used. An older revision is refused until a person
runs `orchestrator db upgrade`, which runs the Alembic scripts after it; a newer one and another program's are refused.

An error says which registry, what is wrong with it and what to do. Waiting helps where the server is down or starts,
the connection broke, or another process holds a lock (`RegistryUnavailableError`): who needs the call asks a `patient`
registry. It does not help where the file is read-only, the disk is full, or a table is missing: somebody has to act.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Executable,
    MetaData,
    Select,
    String,
    Table,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection

from orchestrator.base.errors import InputError, RegistryError, RegistryUnavailableError
from orchestrator.base.run_states import LOST_AFTER_S
from orchestrator.registry.connections import (
    VERSION_TABLE,
    WriteTransaction,
    allow_writing,
    open_empty,
    open_engine,
    refuse_foreign,
)
from orchestrator.registry.dialects import lock_until_commit
from orchestrator.registry.location import display_url, resolve_url, without_secrets
from orchestrator.registry.tables import METADATA

logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_P = ParamSpec("_P")

FIRST_REVISION, NEWEST_REVISION = "0014", "0014"
MIGRATIONS = Path(__file__).with_name("migrations")
_VERSION = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))
_TRUSTED_S = 1.0
"""Time for which a server's connection is taken to live after a transaction."""
_OF_READING: dict[str, Any] = {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
"""Options of a server's connection that reads: all statements of a transaction see the same rows, as in SQLite."""
PATIENCE_S = 3600.0
"""Longest wait of a run for a registry that does not answer."""
RETRY_S = 5.0
"""Pause between two tries."""
_MEANINGS = {
    ("not a database",): "is not a SQLite database; give the path of another one",
    ("unable to open",): "cannot be opened; check that it is a file, and that its folder exists and may be written",
    ("readonly", "25006"): "cannot be written ({cause}); check the permissions of the file and its folder, or the URL",
    ("42501",): "cannot be used: {cause}; grant it, or give another user in the URL",
    ("is locked",): "is held by another process for too long; try again when that one is done",
    ("disk is full", "53100"): "cannot be written because the disk is full; free some space and resume",
    ("disk I/O error",): "cannot be read or written: the disk reports an error; check the disk, then resume",
    ("malformed", "no such table", "no such column", "has no column", "42703", "42P01"): (
        "is damaged ({cause}); restore it from a backup"
    ),
}
"""Parts of SQLite's own message, or SQLSTATEs (PostgreSQL's documentation, appendix A), and what they mean."""
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_PASSING = ("08", "40001", "40P01", "53300", "55P03", "57P01", "57P02", "57P03")
"""Beginnings of SQLSTATEs: connection, serialization, deadlock, too many connections, lock, shutdown, crash, start."""
_PASSING_REFUSALS = ("starting up", "shutting down", "recovery mode", "not yet accepting", "too many", "slots are")
"""Parts of a server's refusals to connect that pass; these come without an SQLSTATE."""
_OUT_OF_RANGE = "22003"
_TOO_LARGE = "A number is larger than the registry holds: a seed or step from 2**63 on, any other from 1.8e308 on."


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
    advice = "newer than this version knows; upgrade bert-orchestrator"
    if revision < FIRST_REVISION:
        advice = "of an earlier version; read it with the version that wrote it, and begin another registry here"
    raise RegistryError(f"The registry {place} is at revision {revision}, {advice}.")


def _run_scripts(connection: Connection) -> None:
    """Run the Alembic scripts that come after the revision of the tables."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(MIGRATIONS), version_locations=[str(MIGRATIONS)])
    with EnvironmentContext(Config(), scripts, fn=lambda found, _: scripts._upgrade_revs("head", found)) as steps:
        steps.configure(connection=connection, version_table=VERSION_TABLE, target_metadata=METADATA)
        steps.run_migrations()


class Database:
    """One database, opened on first use. Several threads may use it at once, each by connections of its own.

    One that is `read_only`, and is not there or has no tables yet, reads as an empty one.
    """

    def __init__(self, location: str, *, read_only: bool = False, lost_after_s: float = LOST_AFTER_S) -> None:
        self.url = resolve_url(location)  # with its password
        self.dialect = self.url.get_backend_name()
        """Kind of database: `sqlite` or `postgresql`."""
        self.lost_after_s = lost_after_s
        self._translated_errors = _TranslatedErrors(self.url)
        self._read_only = read_only
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._empty: Engine | None = None
        self._is_checked = False  # whether the tables are known to be of the newest revision
        self._idle: list[tuple[PoolProxiedConnection, Any, float]] = []  # connections that have written, and when
        self._keys: dict[Any, int] = {}  # of names and series

    def __str__(self) -> str:
        return display_url(self.url)

    @contextmanager
    def connection(self, *, writing: bool) -> Iterator[Connection]:
        """Open a connection in one transaction: committed at the end of the block, rolled back when the block raises.

        One that is not for writing refuses to write, and takes no lock in SQLite.

        Raises: RegistryUnavailableError where the database may answer again by itself, RegistryError for other errors.
        """
        with self._translated_errors:
            engine = self._checked(writing=writing)
            of_server = {} if writing or engine.dialect.name == "sqlite" else _OF_READING
            opened = engine.connect().execution_options(writing=writing, **of_server)
            with opened as connection, connection.begin():
                yield connection
                if writing:
                    self._keys = {}  # of what the connection may have removed, before SQLite lets others write
            if writing:
                self._keys = {}  # and what others have found until a server's commit

    def read(self, use: Callable[Concatenate[Connection, _P], _T], *given: _P.args, **named: _P.kwargs) -> _T:
        """Call a function with a connection that reads, in one transaction. Raises: as `connection`."""
        with self.connection(writing=False) as connection:
            return use(connection, *given, **named)

    def rows(self, statement: Executable) -> Sequence[Any]:
        """Rows that a statement selects, in a transaction of its own. Raises: as `connection`."""
        with self.connection(writing=False) as connection:
            return connection.execute(statement).all()

    def scalar(self, statement: Select[Any]) -> Any:
        """First value of the first row that a statement selects; None where there is none. Raises: as `connection`."""
        with self.connection(writing=False) as connection:
            return connection.scalar(statement)

    @contextmanager
    def transaction(self) -> Iterator[WriteTransaction]:
        """Open a transaction for writing by the driver itself, which costs a short one far less than SQLAlchemy does.

        Raises: as `connection`.
        """
        with self._translated_errors:
            connection, driver = self._connect()
            try:
                if self.dialect == "sqlite":
                    driver.execute("BEGIN IMMEDIATE")
                # Keys that another thread forgets stay known to this transaction.
                transaction = WriteTransaction(driver.cursor(), self.dialect, self._keys)
                yield transaction
                driver.commit()
            except BaseException:
                connection.invalidate()  # it is closed, and its transaction and its locks go with it
                raise
        self._idle.append((connection, driver, time.monotonic()))
        transaction.keys.update(transaction.new_keys)

    def _connect(self) -> tuple[PoolProxiedConnection, Any]:
        """Connection for writing, and the driver's own: one that has written just now, else one of SQLAlchemy's pool.

        The pool finds out whether a connection still lives, which costs as much as a short transaction.
        """
        engine = self._checked(writing=True)
        with suppress(IndexError):  # where none is idle
            while True:
                connection, driver, used_at = self._idle.pop()
                if time.monotonic() - used_at < _TRUSTED_S:
                    return connection, driver
                connection.close()
        connection = engine.raw_connection()
        return connection, allow_writing(connection) if self.dialect == "sqlite" else connection.driver_connection

    def open(self) -> None:
        """Connect, and create or check the tables, now rather than on first use."""
        with self._translated_errors:
            self._checked(writing=not self._read_only)

    def upgrade(self, before: Callable[[str], object] | None = None) -> str:
        """Bring the tables to the newest revision and return it; of several processes one does the work.

        `before` is called with the revision of tables that are about to be changed, while other writers wait.
        """
        self._refuse_to_write()
        with self._translated_errors, self._open().execution_options(writing=True).begin() as connection:
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
                _run_scripts(connection)
        return NEWEST_REVISION

    def current_revision(self) -> str | None:
        """Revision of the tables; None where there are no tables yet."""
        with self._translated_errors, self._lock, self._open().connect() as connection:
            return _read_revision(connection, str(self))

    def refuse_missing(self) -> None:
        """Raise a RegistryError, with the nearest file, where there are no tables yet."""
        if self.current_revision() is None:
            from orchestrator.base.nearest import similar_file

            meant = similar_file(Path(str(self)), "*.sqlite") or "; check the path"
            raise RegistryError(f"There is no registry at {self}{meant}")

    def close(self) -> None:
        """Close every connection; the next use opens new ones."""
        with self._lock:
            while self._idle:
                self._idle.pop()[0].close()
            for engine in filter(None, (self._engine, self._empty)):
                engine.dispose()
            self._engine, self._empty, self._is_checked = None, None, False

    def _refuse_to_write(self) -> None:
        if self._read_only:
            raise RegistryError(f"The registry {self} is open for reading only.")

    def _checked(self, *, writing: bool) -> Engine:
        """Engine whose tables are made or checked once, before the first use."""
        if writing:
            self._refuse_to_write()
        with self._lock:
            if not self._is_checked:
                revision = self.current_revision()
                _refuse_unknown(revision, str(self))
                if revision is None and self._read_only:
                    return self._empty_database()
                if revision is None:
                    self.upgrade()
                elif revision != NEWEST_REVISION:
                    older = f"is at an older revision ({revision})"
                    raise RegistryError(f"The registry {self} {older}; run: orchestrator db upgrade")
                self._is_checked = True
            return self._open()

    def _empty_database(self) -> Engine:
        """An empty database in place of one without tables, which the next use looks at again: a run may make them."""
        self._open().dispose()
        self._engine = None
        if self._empty is None:
            self._empty = open_empty()
            METADATA.create_all(self._empty.execution_options(writing=True))
        return self._empty

    def _open(self) -> Engine:
        with self._lock:
            self._engine = self._engine or open_engine(self.url, read_only=self._read_only)
            return self._engine


class _TranslatedErrors(AbstractContextManager[None]):
    """Block whose errors of the database become errors of the registry; a generator would take four times as long."""

    def __init__(self, url: URL) -> None:
        self._url = url

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        kinds = sqlite3.Error, OverflowError, SQLAlchemyError
        if isinstance(error, Exception) and (isinstance(error, kinds) or hasattr(error, "sqlstate")):  # psycopg's
            raise _translate(error, self._url) from error


class RegistryPart:
    """Attribute of `Registry` that writes and reads one subject."""

    def __init__(self, database: Database) -> None:
        self._database = database


def _translate(error: Exception, url: URL) -> InputError | RegistryError:
    """Error of the registry for an error of its database: a RegistryUnavailableError where waiting helps.

    Its one sentence names the registry, says what is wrong and what to do; secrets of the URL are not in it.
    """
    original: Any = getattr(error, "orig", None) or error
    state: str | None = getattr(original, "sqlstate", None)
    if isinstance(original, OverflowError) or state == _OUT_OF_RANGE:
        return InputError(_TOO_LARGE)
    place = f"The registry {display_url(url)}"
    lines = without_secrets(str(original), url).strip().splitlines()
    cause = lines[0].rstrip(".") if lines else type(original).__name__
    is_lost = False  # whether PostgreSQL's driver could not reach the server, or lost it
    if isinstance(original, sqlite3.Error):
        passes = getattr(original, "sqlite_errorcode", 0) & 0xFF in _BUSY  # the higher bits tell more of the same code
    elif state is not None:
        passes = state.startswith(_PASSING)
    else:
        is_lost = type(original).__name__ in ("OperationalError", "InterfaceError", "ConnectionTimeout")
        is_refused = "FATAL" in str(original) and not any(sign in str(original) for sign in _PASSING_REFUSALS)
        passes = is_lost and not is_refused
    kind = RegistryUnavailableError if passes else RegistryError
    for signs, meaning in _MEANINGS.items():
        if any(sign in (state or cause) for sign in signs):
            return kind(f"{place} {meaning.format(cause=cause)}.")
    if is_lost or (state is not None and "connect" in cause):
        advice = "Check that the server runs, its host, user, password and database."
        return kind(f"{place} cannot be reached: {cause}. {advice}")
    if "FOREIGN KEY" in cause.upper() or ("run_id" in cause and "NULL" in cause.upper()):
        return kind(f"{place} has no such run: {cause}.")
    return kind(f"{place} refused: {cause}.")


def retry_while_unavailable(use: Callable[[], _T], given_up: threading.Event | None = None) -> _T:
    """Use the registry; while it does not answer, warn once and try again, for PATIENCE_S at most or until given up.

    It may be done twice: a broken connection leaves open whether the first try was committed.
    """
    given_up = given_up or threading.Event()
    give_up_at, has_said = time.monotonic() + PATIENCE_S, False
    while True:
        try:
            return use()
        except RegistryUnavailableError as error:
            if given_up.is_set() or time.monotonic() > give_up_at:
                raise
            if not has_said:
                logger.warning("%s Trying again for %.0f minutes.", error, PATIENCE_S / 60)
            has_said = True
        given_up.wait(RETRY_S)


def patient(registry: _T, given_up: threading.Event | None = None) -> _T:
    """A registry, or a part of it, whose methods wait for it; what they return does not, and it has no `with`."""
    return cast(_T, _Patient(registry, given_up))


class _Patient:
    def __init__(self, registry: object, given_up: threading.Event | None) -> None:
        self._registry, self._given_up = registry, given_up

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._registry, name)
        if callable(found):
            return lambda *given, **named: retry_while_unavailable(lambda: found(*given, **named), self._given_up)
        return found if isinstance(found, str) else patient(found, self._given_up)
