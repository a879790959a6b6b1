"""Connection to one database: its engine, and the one context manager that commits, rolls back and translates errors.

On SQLite every writing transaction begins with `BEGIN IMMEDIATE` (`sqlite_engine.py`): it takes the write lock before
it reads, so that no other writer can come between. What is written all the time goes past SQLAlchemy to the driver
(`write_transactions.py`), under the same rules. With `synchronous = NORMAL` a killed process loses nothing; a
power cut can lose the last transactions.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.errors import InputError, RegistryError
from orchestrator.registry.engines.database_errors import translate
from orchestrator.registry.engines.dialects import open_engine
from orchestrator.registry.engines.write_transactions import (
    ServerWriters,
    SqliteWriters,
    WriteTransaction,
    as_sqlalchemy_error,
)
from orchestrator.registry.location import display_url, resolve_url
from orchestrator.registry.revisions import (
    current_revision,
    empty_schema,
    ensure_schema,
    has_tables,
    upgrade_schema,
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
