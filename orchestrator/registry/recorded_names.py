"""Names that a registry has recorded: for whoever completes a word, and for a query whose field no run has.

A shell asks at each press of the Tab key, so that the answer must be there at once. A SQLite file is read by the
standard library alone, since loading SQLAlchemy and the tables takes longer than all the rest. A registry of 100,000
runs has millions of rows of parameters, and some hundred names. Nothing is ever written.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from orchestrator.nearest import nearest
from orchestrator.registry.location import reading_address
from orchestrator.registry.query_tree import METRIC_SPLITS, field_text, short_names

if TYPE_CHECKING:
    from sqlalchemy import Connection

MAX_NAMES = 200
"""Number of names of one kind that are offered at most, the newest ones."""
_NUM_LISTED = 8
_SQLITE = "sqlite:///"
_BUSY_TIMEOUT_S = 1.0
_ALIASES = "model_aliases JOIN models USING (name, version)"
"""Aliases of models that were not removed."""
_CALLED = "SELECT key FROM runs WHERE name = :name OR id LIKE :prefix"
_NAMED = "SELECT key FROM names WHERE text = :name"
_TAGS = (
    "WITH RECURSIVE found(name) AS (SELECT min(word) FROM own_marks WHERE kind = 'tag' UNION ALL "
    "SELECT (SELECT min(word) FROM own_marks WHERE kind = 'tag' AND word > found.name) "
    "FROM found WHERE found.name IS NOT NULL) "
    "SELECT name FROM found WHERE name IS NOT NULL"
)
"""The distinct tags that people gave, in order, without reading every row."""
_RECORDED = {
    "runs": "SELECT id, kind || ' ' || name || ', ' || lower(state) FROM runs WHERE id LIKE :prefix "
    "AND (parent_id IS NULL OR :prefix <> '%') ORDER BY created_at DESC",
    "versions": "SELECT name || '@' || version, head FROM models ORDER BY created_at DESC, version DESC",
    "labels": f"SELECT name || '@' || alias, 'version ' || version FROM {_ALIASES}",
    "aliases": f"SELECT DISTINCT alias, 'alias' FROM {_ALIASES} ORDER BY 1",
    "removed": "SELECT id, kind || ' ' || name FROM all_runs WHERE removed_at IS NOT NULL AND parent_id IS NULL "
    "ORDER BY removed_at DESC",
    "tasks": "SELECT DISTINCT task, 'recorded' FROM runs WHERE task IS NOT NULL AND parent_id IS NOT NULL",
    "kinds": f"SELECT name, kind FROM runs WHERE key IN ({_CALLED}) ORDER BY name = :name DESC, created_at DESC",
}
"""Statements for names of each kind, with what each is in a few words."""
Named = list[tuple[str, str]]
"""Names, each with what it is in a few words."""
Read = Callable[[str, Mapping[str, Any]], Sequence[Any]]
"""Function that runs a statement with its values and returns the rows."""


class RecordedNames:
    """Names in one registry; a registry that is not there has none.

    Raises: RegistryError, sqlite3.Error, or SQLAlchemy's errors from every method, where the registry cannot be read.
    """

    def __init__(self, read: Read) -> None:
        self._read = read

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
        """Names of one kind, the newest first or in order, 200 at most.

        Args:
            what: `runs` whose ids begin so, trials too where the characters name some; `tasks` that trials were scored
                on; `aliases` of models; `removed` runs.
            run: beginning of the ids of runs.
        """
        return self._named(f"{_RECORDED[what]} LIMIT :most", _called(run))

    def models(self) -> Named:
        """Names of models, each version as `name@version`, and each alias as `name@alias`."""
        versions = self.named("versions")
        newest = {label.rpartition("@")[0]: head for label, head in reversed(versions)}
        return [*reversed(newest.items()), *versions, *self.named("labels")]

    def tags(self, run: str = "") -> Named:
        """Tags of the runs of a name, or whose id begins so; of all runs when it is empty."""
        return self._named(
            f"SELECT DISTINCT word, kind FROM own_marks WHERE kind = 'tag' AND run_id IN ({_CALLED}) "
            "ORDER BY 1 LIMIT :most",
            _called(run),
        )

    def kind_of_run(self, wanted: str) -> str | None:
        """The kind of the newest run of a name, else of the one run whose id begins so."""
        rows = self.named("kinds", wanted)
        return rows[0][1] if len(rows) == 1 or (rows and rows[0][0] == wanted) else None

    def metrics(self, run: str = "") -> list[str]:
        """Measurements as queries name them (`f1`, `train.loss`); of all runs, or of runs as `tags` finds them."""
        condition, values = (f" AND run_id IN ({_CALLED})", _called(run)) if run else ("", {})
        found = sorted(name.split(".", 1) for name in self._used("series WHERE series.name", condition, values))
        in_order = sorted(found, key=lambda part: METRIC_SPLITS.index(part[0]))
        return [name if split == METRIC_SPLITS[0] else f"{split}.{name}" for split, name in in_order]

    def has_metric(self, series: str) -> bool:
        """Whether some run has this measurement; true in a registry without any, where no name is wrong."""
        of_name = "SELECT 1 FROM series JOIN runs ON runs.key = run_id WHERE series.name = ({}) LIMIT 1"
        is_there = self._read(of_name.format(_NAMED), {"name": series})
        return bool(is_there) or not self._read("SELECT 1 FROM series LIMIT 1", {})

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
        return list(dict.fromkeys(tag.partition(":")[0] for (tag,) in self._read(_TAGS, {})))

    def nearest_fields(self, name: str, others: Sequence[str]) -> str:
        """Tell what a person may have meant by the name of a field that no run has, else which fields there are.

        Args:
            others: names of the fields that every run has.
        """
        known = [*others, *(f"metrics.{metric}" for metric in self.metrics())]
        known += [f"params.{parameter}" for parameter, _ in self.parameters()]
        near, area = nearest(name, known), name.partition(".")[0] + "."
        there = [field_text(other) for other in known if other.startswith(area)]
        if near or there:
            return offer([*map(field_text, near)], there)
        return f"there are: {', '.join([*others, 'metrics.NAME', 'params.PATH', 'tags.NAME'])}"

    def _named(self, statement: str, values: Mapping[str, Any]) -> Named:
        rows = self._read(statement, {"most": MAX_NAMES, **values})
        return [(str(name), str(about or "")) for name, about in rows]

    def _used(self, where: str, condition: str = "", values: Mapping[str, Any] | None = None) -> list[str]:
        """Names that rows of a table have, each found by one look-up in an index."""
        is_used = f"EXISTS (SELECT 1 FROM {where} = names.key{condition})"
        return [name for (name,) in self._read(f"SELECT text FROM names WHERE {is_used}", values or {})]


def offer(near: Sequence[str], known: Sequence[str]) -> str:
    """Offer what may have been meant by a name that is not there: the nearest ones, else the first that there are."""
    return f"nearest: {', '.join(near)}" if near else f"there are: {', '.join(some(known))}"


def some(names: Sequence[str]) -> list[str]:
    """The first few names for a message."""
    return [*names[:_NUM_LISTED], *(["…"] if len(names) > _NUM_LISTED else [])]


def _called(run: str) -> dict[str, str]:
    return {"name": run, "prefix": _like(run) + "%"}


def _like(prefix: str) -> str:
    """The beginning of an id as a pattern; ids are hexadecimal, and anything else finds nothing."""
    return prefix.lower() if prefix.isalnum() or not prefix else "-"


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
