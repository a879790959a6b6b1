"""Names that a registry has recorded, for whoever completes a word: ids of runs, models, tasks, fields of queries.

A shell asks at each press of the Tab key, so that the answer must be there at once. A SQLite file is read by the
standard library alone, since loading SQLAlchemy and the tables takes longer than all the rest; other databases are read
as `Registry` reads them. Nothing is ever written.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from orchestrator.registry.engines.sqlite_files import reading_address

MAX_NAMES = 200
"""Number of names of one kind that are given at most, the newest ones."""
_SQLITE = "sqlite:///"
_BUSY_TIMEOUT_S = 1.0
_CALLED = "SELECT id FROM runs WHERE name = :name OR id LIKE :prefix"

Named = list[tuple[str, str]]
"""Names, each with what it is in a few words."""


class RecordedNames:
    """Names in one registry; a registry that is not there has none.

    Raises: RegistryError, sqlite3.Error, or SQLAlchemy's errors from every method, where the registry cannot be read.
    """

    def __init__(self, location: str) -> None:
        """`location` is what `Registry` takes: a path, a URL, or `file:PATH`."""
        self._location = location

    def runs(self, prefix: str) -> Named:
        """Ids of runs that begin with some characters, newest first; trials too where the characters name some."""
        return self._named(
            "SELECT id, kind || ' ' || name || ', ' || lower(state) FROM runs WHERE id LIKE :prefix "
            "AND (parent_id IS NULL OR :prefix <> '%') ORDER BY created_at DESC LIMIT :most",
            {"prefix": _like(prefix) + "%"},
        )

    def models(self) -> Named:
        """Names of models, each version as `name@version`, and each alias as `name@alias`."""
        rows = self._named(
            "SELECT name || '@' || version, head FROM models ORDER BY created_at DESC LIMIT :most",
        )
        rows += self._named("SELECT name || '@' || alias, 'version ' || version FROM model_aliases LIMIT :most")
        newest = {label.rpartition("@")[0]: head for label, head in reversed(rows) if not head.startswith("version ")}
        return [*reversed(newest.items()), *rows]

    def tags(self, run: str = "") -> Named:
        """Tags of the runs of a name, or whose id begins so; of all runs when it is empty."""
        return self._named(
            f"SELECT DISTINCT tag, 'tag' FROM tags WHERE run_id IN ({_CALLED}) ORDER BY 1 LIMIT :most",
            {"name": run, "prefix": _like(run) + "%"},
        )

    def aliases(self) -> Named:
        """Aliases of models."""
        return self._named("SELECT DISTINCT alias, 'alias' FROM model_aliases ORDER BY 1 LIMIT :most")

    def removed(self) -> Named:
        """Ids of the runs in the trash."""
        return self._named(
            "SELECT id, kind || ' ' || name FROM all_runs WHERE removed_at IS NOT NULL AND parent_id IS NULL "
            "ORDER BY removed_at DESC LIMIT :most"
        )

    def tasks(self) -> Named:
        """Tasks that finished trials were scored on."""
        return self._named(
            "SELECT DISTINCT task, 'recorded' FROM runs WHERE task IS NOT NULL AND parent_id IS NOT NULL LIMIT :most"
        )

    def metrics(self, run: str = "") -> Named:
        """Measurements as queries name them (`f1`, `train.loss`); of runs as `tags` finds them."""
        return self._named(
            "SELECT DISTINCT CASE split WHEN 'validation' THEN name ELSE split || '.' || name END, 'measurement' "
            f"FROM metrics WHERE run_id IN ({_CALLED}) ORDER BY 1 LIMIT :most",
            {"name": run, "prefix": _like(run) + "%"},
        )

    def parameters(self) -> Named:
        """Parameters of runs, by the short name where it is unique within a run, and by the dotted path."""
        rows = self._named("SELECT DISTINCT path, leaf FROM parameters ORDER BY path LIMIT :most")
        short = {leaf: path for path, leaf in rows if leaf}
        return [*sorted(short.items()), *((path, "parameter") for path, _ in rows if path not in short)]

    def kind_of_run(self, wanted: str) -> str | None:
        """The kind of the newest run of a name, else of the one run whose id begins so."""
        values = {"name": wanted, "prefix": _like(wanted) + "%"}
        rows = self._named(
            f"SELECT name, kind FROM runs WHERE id IN ({_CALLED}) ORDER BY name = :name DESC, created_at DESC "
            "LIMIT :most",
            values,
        )
        return rows[0][1] if len(rows) == 1 or (rows and rows[0][0] == wanted) else None

    def _named(self, statement: str, values: Mapping[str, Any] | None = None) -> Named:
        rows = _rows(self._location, statement, {"most": MAX_NAMES, **(values or {})})
        return [(str(name), str(about or "")) for name, about in rows]


def _like(prefix: str) -> str:
    """The beginning of an id as a pattern; ids are hexadecimal, and anything else finds nothing."""
    return prefix.lower() if prefix.isalnum() or not prefix else "-"


def _rows(location: str, statement: str, values: Mapping[str, Any]) -> Sequence[Any]:
    path = _sqlite_path(location)
    if path is None:
        return _rows_elsewhere(location, statement, values)
    if not path.is_file():
        return []
    address = reading_address(path)
    with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA query_only = ON")
        return connection.execute(statement, values).fetchall()


def _sqlite_path(location: str) -> Path | None:
    """Path of a SQLite file that is named plainly; None for every other location."""
    path = location.removeprefix(_SQLITE)
    if not path or path.startswith("file:") or "://" in path or "?" in path:
        return None
    return Path(path).expanduser()


def _rows_elsewhere(location: str, statement: str, values: Mapping[str, Any]) -> Sequence[Any]:
    from sqlalchemy import text

    from orchestrator.registry.database import Database

    database = Database(location, read_only=True)
    try:
        with database.session(writing=False) as session:
            return session.execute(text(statement), dict(values)).all()
    finally:
        database.close()
