"""Lineage: what was made of what, as edges between digests of files, data, models and exports.

The edges of a run follow from what it has recorded anyway (`lineage_edges.py`). They are written when it completes;
those of runs from elsewhere come with them.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, and_, case, false, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from orchestrator.errors import NotFoundError, SeveralRunsError
from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import select_items, upsert_rows
from orchestrator.registry.lineage.lineage_edges import LineageEdge, LineageNode, edges_of_run, export_node, model_node
from orchestrator.registry.lineage.lineage_staleness import stale_nodes
from orchestrator.registry.records import RunRecord
from orchestrator.registry.run_records import find_run
from orchestrator.registry.tables import LineageRow, ModelRow, RunRow, StoredRun
from orchestrator.registry.trial_rows import load_kept_trials
from orchestrator.run_states import RunState

_ORDER = ("text", "examples", "tokenizer", "weights", "teacher", "copy")


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


def grow(root: LineageNode, edges: Sequence[LineageEdge], stale: Mapping[str, str], *, downward: bool) -> LineageTree:
    """Make the tree of a node from edges.

    Args:
        stale: why nodes are stale, by their digests.
        downward: from parents to children, or from children to parents.
    """
    by_end: defaultdict[str, list[LineageEdge]] = defaultdict(list)
    for edge in edges:
        by_end[(edge.parent if downward else edge.child).digest].append(edge)
    drawn: set[str] = set()

    def branch(node: LineageNode, via: LineageEdge | None) -> LineageTree:
        is_repeated = node.digest in drawn and bool(by_end[node.digest])
        drawn.add(node.digest)
        below = [] if is_repeated else sorted(by_end[node.digest], key=_place)
        branches = tuple(branch(edge.child if downward else edge.parent, edge) for edge in below)
        role, run_id = (None, None) if via is None else (via.role, via.run_id)
        return LineageTree(node, role, run_id, stale.get(node.digest), branches, is_repeated)

    return branch(root, None)


def _place(edge: LineageEdge) -> tuple[int, str, str]:
    """Key by which branches are ordered: the data first."""
    known = edge.role in _ORDER
    return _ORDER.index(edge.role) if known else len(_ORDER), edge.parent.name, edge.child.name


class Lineage:
    """`registry.lineage`: writes and reads edges, and the trees that they make."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record_run(self, run_id: str, *, is_here: bool = False) -> None:
        """Record the edges that follow from what is recorded of a completed run.

        An edge that is there already keeps its names, takes the newer of both times, and a run where it has none any
        more.

        Args:
            is_here: whether the run works in this process: relative paths are meant from the current folder.
        """
        with self._database.session(writing=True) as session:
            run = session.get(RunRow, run_id)
            if run is not None and run.state == RunState.COMPLETED and run.parent_id is None:
                _write_edges(session, edges_of_run(session, run, is_here=is_here))

    def record_export(self, folder: str, target: str) -> None:
        """Record that the model in a folder was exported to another one; nothing for a model that is not registered."""
        with self._database.session(writing=True) as session:
            model = model_node(session, folder)
            if model is not None:
                _write_edges(session, [LineageEdge(export_node(target, model.digest), model, "copy")])

    def parents(self, digests: Collection[str]) -> list[LineageEdge]:
        """Edges that lead to what these were made of, the oldest first."""
        with self._database.session(writing=False) as session:
            return _load_edges(session, LineageRow.child.in_(select_items(session, digests)))

    def ancestors(self, name: str) -> LineageTree:
        """The tree of all that something was made of, with what is stale. Raises: NotFoundError."""
        return self._tree(name, LineageRow.child)

    def descendants(self, name: str) -> LineageTree:
        """The tree of all that was made of something, with what is stale. Raises: NotFoundError."""
        return self._tree(name, LineageRow.parent)

    def _tree(self, name: str, end: InstrumentedAttribute[str]) -> LineageTree:
        with self._database.session(writing=False) as session:
            root = find_node(session, name, file_first=end is LineageRow.parent)
            edges = _reachable(session, end, {root.digest})
            nodes = {root.digest} | {digest for edge in edges for digest in (edge.child.digest, edge.parent.digest)}
            # Something is stale by any of its ancestors, also by one that stands on no branch of this tree.
            stale = stale_nodes(session, _reachable(session, LineageRow.child, nodes))
            return grow(root, edges, stale, downward=end is LineageRow.parent)


def _reachable(session: Session, end: InstrumentedAttribute[str], digests: Collection[str]) -> list[LineageEdge]:
    """Edges that are reached from some digests, each by this end of it."""
    other_end = LineageRow.parent if end is LineageRow.child else LineageRow.child
    first = select(end.label("digest")).where(end.in_(select_items(session, digests)))
    reached = first.cte("reached", recursive=True)
    further = select(other_end).join(reached, end == reached.c.digest)
    return _load_edges(session, end.in_(select(reached.union(further).c.digest)))


def _write_edges(session: Session, edges: Sequence[LineageEdge]) -> None:
    """Write edges in a session."""
    rows = [
        {
            "child": edge.child.digest,
            "parent": edge.parent.digest,
            "role": edge.role,
            "child_kind": edge.child.kind,
            "child_name": edge.child.name,
            "parent_kind": edge.parent.kind,
            "parent_name": edge.parent.name,
            "run_id": edge.run_id,
            **({} if edge.recorded_at is None else {"recorded_at": edge.recorded_at}),
        }
        for edge in edges
        if edge.child.digest != edge.parent.digest
    ]
    for has_time in (True, False):  # rows of one statement have the same columns
        alike = [row for row in rows if ("recorded_at" in row) is has_time]
        keys = ("child", "parent", "role")
        upsert_rows(session, LineageRow, keys, ("recorded_at",), alike, newer=_says_more, also=_newest)


def _says_more(new: Any) -> ColumnElement[bool]:
    """Whether an edge is newer than the one that is there, or names the run where that one does not any more."""
    return or_(new.recorded_at > LineageRow.recorded_at, and_(_has_lost_its_run(), new.run_id.is_not(None)))


def _newest(new: Any) -> dict[str, Any]:
    is_newer = new.recorded_at > LineageRow.recorded_at
    return {
        "recorded_at": case((is_newer, new.recorded_at), else_=LineageRow.recorded_at),
        "run_id": case((_has_lost_its_run(), new.run_id), else_=LineageRow.run_id),
    }


def _has_lost_its_run() -> ColumnElement[bool]:
    """Whether the run that recorded the edge that is there was removed, or is gone."""
    removed = select(StoredRun.key).where(StoredRun.removed_at.is_not(None))
    return or_(LineageRow.run_id.is_(None), LineageRow.run_id.in_(removed))


def _load_edges(session: Session, condition: ColumnElement[bool]) -> list[LineageEdge]:
    """Edges for which a condition is true, the oldest first."""
    rows = session.scalars(
        select(LineageRow).where(condition).order_by(LineageRow.recorded_at, LineageRow.child, LineageRow.parent)
    )
    return [
        LineageEdge(
            LineageNode(row.child, row.child_kind, row.child_name),
            LineageNode(row.parent, row.parent_kind, row.parent_name),
            row.role,
            row.run_id,
            row.recorded_at,
        )
        for row in rows
    ]


_FEWEST_DIGITS = 6
"""Digits of a digest by which something is found."""


def find_node(session: Session, name: str, *, file_first: bool = False) -> LineageNode:
    """Find a node: by a model's name, a path, a name of data, the beginning of a digest, or a run's id or name.

    Args:
        file_first: whether a path that is a file's and that of the corpus made of it means the file: all that was made
            of the corpus was made of the file, too, and a tokenizer of the file alone.

    Raises: NotFoundError, also where several runs' ids begin so, or the run has made nothing.
    """
    model = model_node(session, name)
    if model is not None:
        return model
    for found in (_place_condition(name), _name_condition(name)):
        for digest, kind, called in _ENDS[::-1] if file_first else _ENDS:
            named = select(digest, kind, called).where(found(digest, called))
            order = [kind != "file"] if file_first else []
            for node in session.execute(named.order_by(*order, LineageRow.recorded_at.desc()).limit(1)):
                return LineageNode(*node)
    made = _made_by(session, name) if name else None
    if made is not None:
        return made
    labels = [f"{row.name}@{row.version}" for row in _newest_models(session)]
    known = f"; models are: {', '.join(labels)}" if labels else ""
    raise NotFoundError(
        f"nothing called {name!r} stands in the lineage; give a model, run, file or the beginning of a digest{known}"
    )


_ENDS = (
    (LineageRow.child, LineageRow.child_kind, LineageRow.child_name),
    (LineageRow.parent, LineageRow.parent_kind, LineageRow.parent_name),
)
Condition = Callable[[InstrumentedAttribute[str], InstrumentedAttribute[str]], ColumnElement[bool]]
"""Function from the columns of a digest and a name to a condition."""


def _place_condition(name: str) -> Condition:
    """Condition that something lies at a path, as it is meant here."""
    place = name if "://" in name or "\0" in name else str(Path(name or ".").absolute())
    return lambda digest, called: called == place


def _name_condition(name: str) -> Condition:
    """Condition that something is called so, lies at a path that ends so, or has a digest that begins so."""
    ending = "/" + name.removeprefix("./").removeprefix("/")

    def condition(digest: InstrumentedAttribute[str], called: InstrumentedAttribute[str]) -> ColumnElement[bool]:
        is_called = or_(called == name, called.endswith(ending, autoescape=True) if name.strip("./") else false())
        if len(name) < _FEWEST_DIGITS:
            return is_called
        return or_(is_called, digest.startswith(name.lower(), autoescape=True))

    return condition


def _made_by(session: Session, name: str) -> LineageNode | None:
    """Find what the run of this id or name has made, its model first; None where no run is called so.

    A trial stands for the model of its sweep where the sweep kept that of this trial. Anything short may begin an id,
    so that other names come first.

    Raises: NotFoundError of a run that made nothing, or where several ids begin so.
    """
    called = _run_called(session, name)
    if called is None:
        return None
    parent = called.parent_id
    is_kept = parent is not None and load_kept_trials(session, [parent]).get(parent) == called.id
    maker = select(RunRow).where(RunRow.id == (parent if is_kept else called.id))
    run = session.scalar(maker.where(RunRow.state == RunState.COMPLETED, RunRow.parent_id.is_(None)))
    edges = [] if run is None else edges_of_run(session, run)
    if not edges:
        raise NotFoundError(
            f"run {called.id} ({called.name}, {called.kind}) made nothing that stands in the lineage; "
            f"what it used and recorded: orchestrator runs show {called.id}"
        )
    return min((edge.child for edge in edges), key=lambda node: node.kind != "model")


def _run_called(session: Session, name: str) -> RunRecord | None:
    """Find the run or trial that a text means. Raises: SeveralRunsError."""
    try:
        return find_run(session, name, RunRow.state.expression)
    except SeveralRunsError:
        raise
    except NotFoundError:
        return None


def _newest_models(session: Session) -> Sequence[ModelRow]:
    return session.scalars(select(ModelRow).order_by(ModelRow.created_at.desc()).limit(5)).all()
