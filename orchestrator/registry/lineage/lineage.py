"""Lineage: what was made of what, as edges between digests of files, data, models and exports.

The edges of a run follow from what it has recorded anyway (`lineage_edges.py`). They are written when it completes;
those of earlier runs when the tables are upgraded, those of runs from elsewhere when they are brought here.
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, case, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import select_items, upsert_rows
from orchestrator.registry.lineage.finding_nodes import find_node
from orchestrator.registry.lineage.lineage_edges import LineageEdge, LineageNode, edges_of_run, export_node, model_node
from orchestrator.registry.lineage.lineage_staleness import stale_nodes
from orchestrator.registry.lineage.lineage_trees import LineageTree, grow
from orchestrator.registry.tables import LineageRow, RunRow, StoredRun
from orchestrator.run_states import RunState


class Lineage:
    """`registry.lineage`: writes and reads edges, and the trees that they make."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, edges: Sequence[LineageEdge]) -> None:
        """Record edges.

        One that is there already keeps its names, takes the newer of both times, and a run where it has none any more.
        """
        with self._database.session(writing=True) as session:
            write_edges(session, edges)

    def record_run(self, run_id: str, *, is_here: bool = False) -> None:
        """Record the edges of a completed run.

        Args:
            is_here: whether the run works in this process: relative paths are meant from the current folder.
        """
        with self._database.session(writing=True) as session:
            derive_edges(session, [run_id], is_here=is_here)

    def record_export(self, folder: str, target: str) -> None:
        """Record that the model in a folder was exported to another one; nothing for a model that is not registered."""
        with self._database.session(writing=True) as session:
            model = model_node(session, folder)
            if model is not None:
                write_edges(session, [LineageEdge(export_node(target, model.digest), model, "copy")])

    def parents(self, digests: Collection[str]) -> list[LineageEdge]:
        """Edges that lead to what these were made of, the oldest first."""
        with self._database.session(writing=False) as session:
            return load_edges(session, LineageRow.child, digests)

    def children(self, digests: Collection[str]) -> list[LineageEdge]:
        """Edges that lead to what was made of these, the oldest first."""
        with self._database.session(writing=False) as session:
            return load_edges(session, LineageRow.parent, digests)

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
    edges: dict[tuple[str, str, str], LineageEdge] = {}
    seen, frontier = set(digests), set(digests)
    while frontier:
        found = load_edges(session, end, frontier)
        edges |= {(edge.child.digest, edge.parent.digest, edge.role): edge for edge in found}
        ends = {digest for edge in found for digest in (edge.child.digest, edge.parent.digest)}
        frontier, seen = ends - seen, seen | ends
    return list(edges.values())


def write_edges(session: Session, edges: Sequence[LineageEdge]) -> None:
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


def derive_edges(session: Session, run_ids: Sequence[str], *, is_here: bool = False) -> None:
    """Write the edges of runs that follow from what is recorded of them."""
    for run_id in run_ids:
        run = session.get(RunRow, run_id)
        if run is not None and run.state == RunState.COMPLETED and run.parent_id is None:
            write_edges(session, edges_of_run(session, run, is_here=is_here))
            session.expunge(run)


def load_edges(session: Session, column: InstrumentedAttribute[Any], values: Collection[str]) -> list[LineageEdge]:
    """Edges that have one of some values in a column, the oldest first."""
    statement = select(LineageRow).where(column.in_(select_items(session, set(values))))
    rows = session.scalars(statement.order_by(LineageRow.recorded_at, LineageRow.child, LineageRow.parent))
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
