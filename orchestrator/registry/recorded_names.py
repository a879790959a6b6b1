"""Names that a registry has recorded: for whoever completes a word, and for a query whose field no run has.

A shell asks at each press of the Tab key, so that a SQLite file is read by the standard library alone: loading
SQLAlchemy and the tables takes longer than all the rest. Nothing is ever written.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from orchestrator.registry.location import reading_address
from orchestrator.registry.query_language import metric_name, series_order, short_names

if TYPE_CHECKING:
    from sqlalchemy import Connection

MAX_NAMES = 200
"""Number of names of one kind that are offered at most, the newest ones."""
_SQLITE = "sqlite:///"
_BUSY_TIMEOUT_S = 1.0
_ALIASES = "model_aliases JOIN models USING (name, version)"
_CALLED = "SELECT key FROM runs WHERE name = :name OR id LIKE :prefix"
_NAMED = "SELECT key FROM names WHERE text = :name"
_RECORDED = {
    "runs": "SELECT id, kind || ' ' || name || ', ' || lower(state) FROM runs WHERE id LIKE :prefix "
    "AND (parent_id IS NULL OR :prefix <> '%') ORDER BY created_at DESC",
    "versions": "SELECT name || '@' || version, head FROM models ORDER BY created_at DESC, version DESC",
    "labels": f"SELECT name || '@' || alias, 'version ' || version FROM {_ALIASES}",
    "tasks": "SELECT DISTINCT task, 'recorded' FROM runs WHERE task IS NOT NULL AND parent_id IS NOT NULL",
    "kinds": f"SELECT name, kind FROM runs WHERE key IN ({_CALLED}) ORDER BY name = :name DESC, created_at DESC",
}
"""Statements for names of each kind, with what each is in a few words."""
Named = list[tuple[str, str]]
"""Names, each with what it is in a few words."""


class RecordedNames:
    """Names in one registry; a registry that is not there has none.

    Raises: RegistryError, sqlite3.Error, or SQLAlchemy's errors from every method, where the registry cannot be read.
    """

    def __init__(self, read: Callable[[str, Mapping[str, Any]], Sequence[Any]]) -> None:
        self._read = read  # runs a statement with its values and returns the rows

    @classmethod
    def at(cls, location: str) -> Self:
        """Names of the registry at what `Registry` takes: a path, a URL, or `file:PATH`."""
        return cls(lambda statement, values: _rows(location, statement, values))

    @classmethod
    def of(cls, connection: "Connection") -> Self:
        """Names of the registry that a connection reads."""
        from sqlalchemy import text

        return cls(lambda statement, values: connection.execute(text(statement), dict(values)).all())

    def named(self, what: str, run: str = "") -> Named:
        """Names of one kind, a key of `_RECORDED`: of runs of a name, or whose ids begin so; else without trials."""
        rows = self._read(f"{_RECORDED[what]} LIMIT :most", {"most": MAX_NAMES, **_called(run)})
        return [(str(name), str(about or "")) for name, about in rows]

    def models(self) -> Named:
        """Names of models, each version as `name@version`, and each alias as `name@alias`."""
        versions = self.named("versions")
        newest = {label.rpartition("@")[0]: head for label, head in reversed(versions)}
        return [*reversed(newest.items()), *versions, *self.named("labels")]

    def kind_of_run(self, wanted: str) -> str | None:
        """The kind of the newest run of a name, else of the one run whose id begins so."""
        rows = self.named("kinds", wanted)
        return rows[0][1] if len(rows) == 1 or (rows and rows[0][0] == wanted) else None

    def metrics(self, run: str = "") -> list[str]:
        """Measurements as queries name them (`f1`, `train.loss`): of all runs, or of those of a name or an id."""
        return [metric_name(name) for name in sorted(self._used("series WHERE series.name", run), key=series_order)]

    def has_metric(self, series: str) -> bool:
        """Whether some run has this measurement; true in a registry without any, where no name is wrong."""
        of_name = f"SELECT 1 FROM series JOIN runs ON runs.key = run_id WHERE series.name = ({_NAMED}) LIMIT 1"
        return bool(self._read(of_name, {"name": series})) or not self._read("SELECT 1 FROM series LIMIT 1", {})

    @cached_property
    def paths(self) -> list[str]:
        """Dotted paths of the parameters of all runs, in order."""
        return sorted(self._used("parameters WHERE path"))

    def is_of_a_run(self, path: str) -> bool:
        """Whether a run has this parameter that was not removed."""
        of_runs = f"SELECT 1 FROM parameters JOIN runs ON runs.key = run_id WHERE path = ({_NAMED}) LIMIT 1"
        return bool(self._read(of_runs, {"name": path}))

    def parameters(self) -> Named:
        """Parameters of runs, by the short name where that means one path, and by the dotted path."""
        short = {name: path for path, name in short_names(self.paths).items() if name != path}
        return [*sorted(short.items()), *((path, "parameter") for path in self.paths)]

    def tag_keys(self) -> list[str]:
        """Keys of tags: the text before the colon, all of a tag without one."""
        tags = self._read("SELECT DISTINCT word FROM own_marks WHERE kind = 'tag' ORDER BY word", {})
        return list(dict.fromkeys(tag.partition(":")[0] for (tag,) in tags))

    def _used(self, where: str, run: str = "") -> list[str]:
        """Names that rows of a table have, each found by one look-up in an index."""
        of_run = f" AND run_id IN ({_CALLED})" if run else ""
        used = f"SELECT text FROM names WHERE EXISTS (SELECT 1 FROM {where} = names.key{of_run})"
        return [name for (name,) in self._read(used, _called(run))]


def _called(run: str) -> dict[str, str]:
    """A name, and the beginning of an id as a pattern; ids are hexadecimal, and anything else finds nothing."""
    return {"name": run, "prefix": f"{run.lower() if run.isalnum() or not run else '-'}%"}


def _rows(location: str, statement: str, values: Mapping[str, Any]) -> Sequence[Any]:
    path = location.removeprefix(_SQLITE)
    if not path or path.startswith("file:") or "://" in path or "?" in path:
        from orchestrator.registry.database import Database

        with closing(Database(location, read_only=True)) as database, database.connection(writing=False) as connection:
            return RecordedNames.of(connection)._read(statement, values)
    if not Path(path).expanduser().is_file():
        return []
    address = reading_address(Path(path).expanduser())
    with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA query_only = ON")
        return connection.execute(statement, values).fetchall()
