"""One database: its engine, and the one session context manager that commits, rolls back and translates errors.

SQLite: write-ahead log, and `BEGIN IMMEDIATE` for whatever writes, so that a reader that turns writer never loses to
another. `synchronous = NORMAL` survives a killed process; only a power cut can take the last transactions along.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from orchestrator.errors import RegistryError, RegistryUnavailableError
from orchestrator.registry.dialects import open_engine
from orchestrator.registry.failures import explain
from orchestrator.registry.location import resolve_url, shown
from orchestrator.registry.schema import current_revision, ensure_schema, upgrade_schema


class Database:
    """Opens on first use; safe to use from several threads."""

    def __init__(self, location: str) -> None:
        self._url = resolve_url(location)
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._checked: dict[bool, Engine] = {}

    def __str__(self) -> str:
        return shown(self._url)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._url.get_backend_name()

    @contextmanager
    def session(self, *, writing: bool) -> Iterator[Session]:
        """A session that sees one state and changes nothing, or whose work is committed whole or not at all.

        Raises: RegistryError.
        """
        with (
            self._explained(),
            Session(self._checked_engine(writing), expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    def upgrade(self) -> str:
        """Bring the tables to the newest revision, one process at a time; returns that revision."""
        with self._explained():
            return upgrade_schema(self._open(), str(self))

    def current_revision(self) -> str | None:
        """The revision the tables are at; None where there are none yet."""
        with self._explained(), self._open().connect() as connection:
            return current_revision(connection)

    def close(self) -> None:
        """Give every connection back; the next use opens anew."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
            self._engine, self._checked = None, {}

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OperationalError, InterfaceError) as error:
            raise RegistryUnavailableError(explain(error, self._url)) from error
        except SQLAlchemyError as error:
            raise RegistryError(explain(error, self._url)) from error

    def _checked_engine(self, writing: bool) -> Engine:
        """The engine for reading or writing, once its tables are known to fit."""
        if not self._checked:
            engine = self._open()
            ensure_schema(engine, str(self))
            self._checked = {
                writes: engine.execution_options(writing=writes, postgresql_readonly=not writes)
                for writes in (True, False)
            }
        return self._checked[writing]

    def _open(self) -> Engine:
        with self._lock:
            if self._engine is None:
                try:
                    self._engine = open_engine(self._url)
                except OSError as error:
                    raise RegistryError(explain(error, self._url)) from error
            return self._engine
