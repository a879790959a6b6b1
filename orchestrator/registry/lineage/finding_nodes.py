"""Nodes of the lineage by what a person calls them: a model, a path, a name of data, a digest, or a run."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import ColumnElement, false, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from orchestrator.errors import NotFoundError, SeveralRunsError
from orchestrator.registry.lineage.lineage_edges import LineageNode, edges_of_run, model_node
from orchestrator.registry.records import RunRecord
from orchestrator.registry.run_records import find_run
from orchestrator.registry.tables import LineageRow, ModelRow, RunRow
from orchestrator.registry.trial_rows import load_kept_trials
from orchestrator.run_states import RunState

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
