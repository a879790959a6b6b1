"""Lineage: what was made of what, as edges between digests of files, data, models and exports.

    files ──► corpus, task, tokenizer ──► model ──► model … ──► export

A node is known by a digest: of content for data, tokenizers and models, of the place for a file, a folder that is not
registered, and an export. So the same weights under two names are one node, and a file that changes stays one.

The edges of a run follow from what it has recorded: its data and their files, its models, and the names in its spec.
They are written as it completes.

A child is stale whose parent has changed, or was superseded by a newer one, since the child was made: a file is gone,
has another size than was read, or was written since with other content; a model has a newer version under each of its
names; the run that made data or a tokenizer was made again, with another result.
"""

import glob
import hashlib
import os
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, case, func, literal, or_, select, union_all

from orchestrator.base.errors import NotFoundError
from orchestrator.base.formatting import printable
from orchestrator.base.run_states import RunState
from orchestrator.registry.database import RegistryPart
from orchestrator.registry.dialects import find_row, upsert_rows
from orchestrator.registry.parameters import load_parameters
from orchestrator.registry.records import find_run, load_kept_trials
from orchestrator.registry.registered_models import named_version, newest_labels
from orchestrator.registry.tables import ALL_RUNS, DATASETS, LINEAGE, MODELS, RUN_DATASETS, RUNS
from orchestrator.storage.uris import absolute

_MAX_FILES = 1000
"""Files that one run has edges to; of more, the first ones."""
_ROLES = {"init_from": "weights", "start": "weights", "run": "weights", "teacher": "teacher"}
"""Roles of the models that a spec names, by the field that names them."""
_ORDER = ("text", "examples", "tokenizer", "weights", "teacher", "copy")
_MAKING_KINDS = ("corpus", "tokenizer")
"""Kinds of runs whose result is data; other runs only use data."""
_FEWEST_DIGITS = 6
"""Digits of a digest by which something is found."""


class LineageNode(NamedTuple):
    """A file, data, a tokenizer, a model or an exported folder, known by its digest."""

    digest: str
    kind: str
    """One of file, corpus, task, tokenizer, model, export."""
    name: str
    """Name at the time: a path, a name of data, or `name@version` of a model."""


Made = tuple[LineageNode, LineageNode, str]
"""A child, what it was made of, and the part that this had in it, of `_ORDER`."""
_ENDS = (
    (LINEAGE.c.child, LINEAGE.c.child_kind, LINEAGE.c.child_name),
    (LINEAGE.c.parent, LINEAGE.c.parent_kind, LINEAGE.c.parent_name),
)
_COLUMNS = (*_ENDS[0], *_ENDS[1], LINEAGE.c.role, LINEAGE.c.run_id, LINEAGE.c.recorded_at)
Edge = Any  # a row of these columns


@dataclass(frozen=True)
class LineageTree:
    """A node and the branches below it: its parents in a tree of ancestors, its children in one of descendants."""

    node: LineageNode
    role: str | None = None
    """Part that the parent of the two had in making the child, on the branch that leads here; None at the root."""
    run_id: str | None = None
    """Run that made the child of that branch."""
    stale: str | None = None
    """Reason why the node is stale; None where all that it was made of is still the newest."""
    branches: tuple["LineageTree", ...] = ()
    is_repeated: bool = False
    """Whether the node stands elsewhere in the tree already, with its branches."""

    def lines(self, first: str = "", others: str = "") -> Iterator[str]:
        """Yield the tree drawn in text, right of two margins, each node with its role and, where stale, the reason."""
        digest = "" if self.node.kind in ("file", "export") else f" {self.node.digest[:12]}"
        role = f"{self.role}: " if self.role else ""
        repeated, stale = " (as above)" if self.is_repeated else "", f"  STALE: {self.stale}" if self.stale else ""
        text = f"{role}{self.node.kind} {self.node.name}{digest}{repeated}{stale}"
        yield first + printable(text, keep_lines=False)
        for number, branch in enumerate(self.branches, start=1):
            ends = ("└── ", "    ") if number == len(self.branches) else ("├── ", "│   ")
            yield from branch.lines(*(others + end for end in ends))

    def record(self) -> dict[str, Any]:
        """The node as plain values, its branches within it."""
        return self._values() | {"branches": [branch.record() for branch in self.branches]}

    def rows(self, depth: int = 0) -> Iterator[dict[str, Any]]:
        """Yield each node as plain values with its depth, before its branches."""
        yield self._values() | {"depth": depth}
        for branch in self.branches:
            yield from branch.rows(depth + 1)

    def _values(self) -> dict[str, Any]:
        node = {"kind": self.node.kind, "name": self.node.name, "digest": self.node.digest}
        return node | {"role": self.role, "run": self.run_id, "stale": self.stale}


class Lineage(RegistryPart):
    """`registry.lineage`: writes and reads edges, and the trees that they make."""

    def record_export(self, folder: str, target: str) -> None:
        """Record that the registered model in a folder was exported; other weights in that place are another node."""
        with self._database.connection(writing=True) as connection:
            if (model := _model_node(connection, folder)) is not None:
                place = absolute(target)
                export = _place_node("export", f"{place} {model.digest}")._replace(name=place)
                _write_edges(connection, [(export, model, "copy")])

    def tree(self, name: str, *, downward: bool = False) -> LineageTree:
        """The tree of all that something was made of, or downward of all that was made of it, with what is stale.

        Raises: NotFoundError.
        """
        with self._database.connection(writing=False) as connection:
            root = _find_node(connection, name, file_first=downward)
            nodes: Select[Any] = select(literal(root.digest).label("digest"))
            if downward:
                nodes = _reached(nodes, LINEAGE.c.parent, LINEAGE.c.child)
            # Something is stale by any of its ancestors, also by one that stands on no branch of this tree.
            nodes = _reached(nodes, LINEAGE.c.child, LINEAGE.c.parent)
            edges = select(*_COLUMNS).where(LINEAGE.c.child.in_(nodes))
            rows = connection.execute(edges.order_by(LINEAGE.c.recorded_at, LINEAGE.c.child, LINEAGE.c.parent)).all()
            return _grow(root, rows, _staleness(connection, rows), downward=downward)


def write_edges_of(connection: Connection, run: Row[Any]) -> None:
    """Write the edges of a run that completes, from what is recorded of it; relative paths are meant from here."""
    _write_edges(connection, _made_in_run(connection, run), run_id=run.id, recorded_at=run.created_at)


def _reached(nodes: Select[Any], end: ColumnElement[Any], other_end: ColumnElement[Any]) -> Select[Any]:
    """Select the digests of nodes and of all that is reached from them, by edges from one end to the other."""
    reached = nodes.cte(recursive=True)
    return select(reached.union(select(other_end).join(reached, end == reached.c.digest)).c.digest)


def _grow(root: LineageNode, edges: Sequence[Edge], stale: Mapping[str, str | None], *, downward: bool) -> LineageTree:
    """Make the tree of a node from edges: from parents to children (downward), or from children to parents."""
    drawn: set[str] = set()
    below: defaultdict[str, list[Edge]] = defaultdict(list)
    for edge in sorted(edges, key=lambda edge: (_ORDER.index(edge.role), edge.parent_name, edge.child_name)):
        below[edge.parent if downward else edge.child].append(edge)

    def branch(node: LineageNode, role: str | None = None, run_id: str | None = None) -> LineageTree:
        is_repeated = node.digest in drawn and bool(below[node.digest])
        drawn.add(node.digest)
        edges = () if is_repeated else below[node.digest]
        ends = ((LineageNode(*edge[:3] if downward else edge[3:6]), edge.role, edge.run_id) for edge in edges)
        branches = tuple(branch(*end) for end in ends)
        return LineageTree(node, role, run_id, stale.get(node.digest), branches, is_repeated)

    return branch(root)


def _write_edges(connection: Connection, edges: Sequence[Made], **recorded: Any) -> None:
    """Write edges, with the run that made the children, if any, and the time from which on they can become stale."""
    names = [column.key for column in _COLUMNS]
    values = ((*child, *parent, role) for child, parent, role in edges if child.digest != parent.digest)
    rows = [dict(zip(names, each, strict=False)) | recorded for each in values]
    upsert_rows(connection, LINEAGE, rows, ("recorded_at",), also=_newest)


def _newest(new: Any) -> dict[str, Any]:
    """Values of an edge that is there already: the newer time, and the run, unless that was removed or is gone."""
    removed = select(ALL_RUNS.c.key).where(ALL_RUNS.c.removed_at.is_not(None))
    has_lost_its_run = or_(LINEAGE.c.run_id.is_(None), LINEAGE.c.run_id.in_(removed))
    return {
        "recorded_at": case((new.recorded_at > LINEAGE.c.recorded_at, new.recorded_at), else_=LINEAGE.c.recorded_at),
        "run_id": case((has_lost_its_run, func.coalesce(new.run_id, LINEAGE.c.run_id)), else_=LINEAGE.c.run_id),
    }


def _made_in_run(connection: Connection, run: Row[Any]) -> list[Made]:
    """Edges to what a completed run has made."""
    linked = select(DATASETS).join(RUN_DATASETS, RUN_DATASETS.c.fingerprint == DATASETS.c.fingerprint)
    data = connection.execute(linked.where(RUN_DATASETS.c.run_id == run.id).order_by(DATASETS.c.name)).all()
    models = connection.execute(select(MODELS).where(MODELS.c.run_id == run.id).order_by(MODELS.c.name)).all()
    tokenizers = {each.tokenizer_digest for each in data if each.tokenizer_digest is not None}
    named = [*_named_parents(connection, run, tokenizers.pop() if len(tokenizers) == 1 else None)]
    pairs: list[Made] = []
    for each in data:
        made = _data_node(each)
        role = "examples" if each.kind == "task" else "text"
        pairs += [(made, _place_node("file", path), role) for path in _files(each, run.spec)]
        if each.kind == "corpus":
            pairs += [(made, node, part) for node, part in named if part == "tokenizer"]
        pairs += [(_node_of(model), made, "tokenizer" if each.kind == "tokenizer" else role) for model in models]
    pairs += [(_node_of(model), node, part) for model in models for node, part in named]
    return [*dict.fromkeys(pairs)]


def _named_parents(
    connection: Connection, run: Row[Any], tokenizer_digest: str | None
) -> Iterator[tuple[LineageNode, str]]:
    """Yield the models and tokenizers that a run named, each with its role; of a sweep, the trial whose model it kept.

    Specs name models by versions or folders alone (`model_names.pin_names`), so that a name means the same later.
    """
    named_by = load_kept_trials(connection, [run.id]).get(run.id, run.id)
    names = {
        (path.rpartition(".")[2], value)
        for path, value in load_parameters(connection, named_by).items()
        if isinstance(value, str) and value != "random" and not path.startswith("space.")
    }
    from orchestrator.specs.references import split_starts  # the driver has the specs loaded, whoever reads has not

    has_weights = any(field in ("init_from", "teacher") for field, _ in names)
    for field, name in sorted(names):
        if field == "tokenizer" and not has_weights:
            yield _tokenizer_node(connection, name, run.created_at, tokenizer_digest), "tokenizer"
        elif field in _ROLES and (field != "init_from" or len(split_starts(name)) == 1):  # a seed has its own `start`
            yield _model_node(connection, name) or _place_node("model", name), _ROLES[field]


def _model_node(connection: Connection, name: str) -> LineageNode | None:
    """Node of a registered model, by its name, `name@version`, `name@alias` or folder; None for no model."""
    newest = select(MODELS).order_by(MODELS.c.version.desc(), MODELS.c.created_at.desc()).limit(1)
    in_folder = newest.where(MODELS.c.folder == name)
    model = connection.execute(named_version(name)).first() or connection.execute(in_folder).first()
    return None if model is None else _node_of(model)


def _tokenizer_node(connection: Connection, name: str, before: datetime, digest: str | None) -> LineageNode:
    """Node of the tokenizer that a name meant: that of the digest, else the last one in that folder by then."""
    is_it = DATASETS.c.path == name if digest is None else DATASETS.c.fingerprint == digest
    newest = select(DATASETS).order_by((DATASETS.c.recorded_at <= before).desc(), DATASETS.c.recorded_at.desc())
    for tokenizer in connection.execute(newest.where(DATASETS.c.kind == "tokenizer", is_it).limit(1)):
        return _data_node(tokenizer)
    unknown = _place_node("tokenizer", name) if digest is None else LineageNode(digest, "tokenizer", name)
    return _model_node(connection, name) or unknown


def _place_node(kind: str, place: str) -> LineageNode:
    """Node of a path or URI that is known by its place alone."""
    return LineageNode(hashlib.sha256(f"{kind} {place}".encode("utf-8", "replace")).hexdigest(), kind, place)


def _node_of(model: Row[Any]) -> LineageNode:
    return LineageNode(model.digest, "model", f"{model.name}@{model.version}")


def _data_node(data: Row[Any]) -> LineageNode:
    """Node of data; all tokenizers have the same name, so that theirs is their folder."""
    return LineageNode(data.fingerprint, data.kind, data.path if data.kind == "tokenizer" else data.name)


def _files(data: Row[Any], spec: Mapping[str, Any]) -> list[str]:
    """Absolute paths of the files that data was made of; a tokenizer's are those that its run's spec names."""
    named: Any = [file["path"] for file in data.files]
    if not named and data.kind == "tokenizer":
        named = (spec.get("corpus") or {}).get("files") or ()
    paths: list[str] = []
    for place in [named] if isinstance(named, str) else named:
        with suppress(OSError):  # a run completes whatever became of its files
            place = absolute(place)
            is_pattern = glob.has_magic(place) and not os.path.lexists(place)
            paths += (sorted(glob.glob(place, recursive=True)) if is_pattern else []) or [place]  # noqa: PTH207
    return paths[:_MAX_FILES]


def _find_node(connection: Connection, name: str, *, file_first: bool) -> LineageNode:
    """Find a node: by a model's name, a path, a name of data, the beginning of a digest, or else a run's id or name.

    A path that is a file's and that of the corpus made of it means the file where `file_first`. Raises: NotFoundError.
    """
    if (model := _model_node(connection, name)) is not None:
        return model
    digest, kind, called, recorded_at = union_all(*(select(*end, LINEAGE.c.recorded_at) for end in _ENDS)).subquery().c
    is_there = called == absolute(name)
    is_called = [is_there, called == name]
    if name.strip("./"):
        is_called.append(called.endswith("/" + name.removeprefix("./").removeprefix("/"), autoescape=True))
    if len(name) >= _FEWEST_DIGITS:
        is_called.append(digest.startswith(name.lower(), autoescape=True))
    is_file = kind == "file"
    order = is_there.desc(), is_file.desc() if file_first else is_file, recorded_at.desc()
    found = connection.execute(select(digest, kind, called).where(or_(*is_called)).order_by(*order)).first()
    return _made_by(connection, name) if found is None else LineageNode(*found)


def _made_by(connection: Connection, name: str) -> LineageNode:
    """Find what a run has made, its model first; a kept trial stands for its sweep. Raises: NotFoundError."""
    if (called := find_run(connection, name, RUNS.c.state.expression)) is None:
        wanted = f"give a model ({newest_labels(connection) or 'none yet'}), run, file or the beginning of a digest"
        raise NotFoundError(f"nothing called {name!r} stands in the lineage; {wanted}")
    kept = load_kept_trials(connection, [called.parent_id]) if called.parent_id is not None else {}
    run = find_row(connection, RUNS, id=called.parent_id if called.id in kept.values() else called.id)
    if run is None or run.parent_id or run.state != RunState.COMPLETED or not (edges := _made_in_run(connection, run)):
        nothing = f"run {called.id} ({called.name}, {called.kind}) made nothing that stands in the lineage"
        raise NotFoundError(f"{nothing}; what it used, and its stages: orchestrator runs show {called.id}")
    return min((made for made, _, _ in edges), key=lambda node: node.kind != "model")


def _staleness(connection: Connection, edges: Sequence[Edge]) -> dict[str, str | None]:
    """Reasons why children are stale, by digest: a parent has changed, or is stale itself; None where they are not."""
    parents: defaultdict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        parents[edge.child].append(edge)
    reasons: dict[str, str | None] = {}

    @cache
    def newer(kind: str, digest: str) -> str | None:
        return (_newer_data if kind in _MAKING_KINDS else _newer_model)(connection, digest)

    def why(digest: str) -> str | None:
        if digest not in reasons:
            reasons[digest] = None  # for a ring to end
            files = (_file_reason(connection, edge) for edge in parents[digest] if edge.parent_kind == "file")
            others = (newer(edge.parent_kind, edge.parent) for edge in parents[digest] if edge.parent_kind != "file")
            made = (f"made of {edge.parent_name}, which is stale" for edge in parents[digest] if why(edge.parent))
            reasons[digest] = next(filter(None, chain(files, others, made)), None)
        return reasons[digest]

    for edge in edges:  # the oldest first, so that each finds its parents' reasons there
        why(edge.child)
    return reasons


def _file_reason(connection: Connection, edge: Edge) -> str | None:
    """Tell how a local file has changed since something was made of it; nothing of a file elsewhere."""
    path = Path(edge.parent_name)
    run = find_row(connection, RUNS, id=edge.run_id) if edge.run_id else None
    if not path.is_absolute() or (run is not None and run.host not in (None, socket.gethostname())):
        return None
    data = find_row(connection, DATASETS, fingerprint=edge.child)
    files = {str(file["path"]): file for file in (data.files if data else ())}
    change = file_change(path, files.get(edge.parent_name, files.get(path.name, {})), edge.recorded_at)
    return change and f"{path.name} {change}"


def file_change(path: Path, read: Mapping[str, Any], since: datetime) -> str | None:
    """Tell how a file has changed since it was read, by its size, else by its time and content; None where it has not.

    `read` has its `num_bytes` and its SHA-256 `digest` then, where these were recorded.
    """
    try:
        status = path.stat()
    except OSError as error:
        return "is gone" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
    if read.get("num_bytes", status.st_size) != status.st_size:
        return f"has {status.st_size:,} bytes now, {read['num_bytes']:,} were read"
    written_at, digest = datetime.fromtimestamp(status.st_mtime, UTC), read.get("digest")
    if written_at <= since or not path.is_file():
        return None
    with suppress(OSError), path.open("rb") as file:
        if digest is not None and hashlib.file_digest(file, "sha256").hexdigest() == digest:
            return None
    return f"was written again, {written_at:%Y-%m-%d %H:%M}"


def _newer_model(connection: Connection, digest: str) -> str | None:
    """Name the newer version of weights; None where they are the newest of some name, or have none."""
    own, other = MODELS.c, MODELS.alias("newer")
    versions = select(own.name, own.version, func.max(other.c.version)).join(other, other.c.name == own.name)
    rows = connection.execute(versions.where(own.digest == digest).group_by(own.name, own.version)).all()
    is_newest = any(version == newest for _, version, newest in rows)
    return None if is_newest or not rows else f"{rows[0][0]}@{rows[0][2]} is newer"


def _newer_data(connection: Connection, digest: str) -> str | None:
    """Name the later run of the same name and kind whose result is other data; None where there is none."""
    made = select(RUNS).join(RUN_DATASETS, RUN_DATASETS.c.run_id == RUNS.c.key)
    made = made.where(RUNS.c.kind.in_(_MAKING_KINDS), RUNS.c.state == RunState.COMPLETED)
    newest_first = made.order_by(RUNS.c.created_at.desc()).limit(1)
    maker = connection.execute(newest_first.where(RUN_DATASETS.c.fingerprint == digest)).first()
    if maker is None:
        return None
    is_again = RUNS.c.name == maker.name, RUNS.c.kind == maker.kind, RUNS.c.created_at > maker.created_at
    newer = connection.execute(newest_first.where(*is_again, RUN_DATASETS.c.fingerprint != digest)).first()
    return None if newer is None else f"run {newer.id} made {newer.name} again, otherwise"
