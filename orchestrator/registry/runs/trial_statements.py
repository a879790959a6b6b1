"""Statements that read and write trials and their sweep, as the database's own driver takes them, each made once."""

from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Text, and_, bindparam, case, literal_column, null, or_, select, update

from orchestrator.registry.column_types import FreeText, utc_now
from orchestrator.registry.engines.dialects import select_list, upsert
from orchestrator.registry.engines.write_transactions import Prepared
from orchestrator.registry.tables import StoredRun
from orchestrator.run_states import RunState

STARTED = {"state": RunState.RUNNING, "attempt": 1}
NEVER_STARTED = {"attempt": 0}
"""Values of the row of a trial that begins, and of one that was not recorded before its end."""
_ROW_COLUMNS = (
    "id",
    "parent_id",
    "trial_key",
    "number",
    "kind",
    "name",
    "task",
    "metric",
    "seed",
    "group_key",
    "spec",
    "host",
    "code_version",
)
_END_COLUMNS = ("state", "error", "seconds", "model_folder", "predictions_path", "host")


class RunColumns(NamedTuple):
    """Columns of a sweep that its trials take over, its key and its kind."""

    id: str
    key: int
    kind: str
    name: str
    task: str | None
    metric: str | None
    host: str | None
    code_version: str | None
    state: str


@lru_cache
def run_statement(dialect: str) -> Prepared:
    """Read the columns of a sweep that its trials take over."""
    columns = [getattr(StoredRun, name) for name in RunColumns._fields[1:]]
    return Prepared(select(*columns).where(StoredRun.id == bindparam("row", type_=Text)), dialect, ("row",))


@lru_cache
def group_statement(dialect: str) -> Prepared:
    """Set the digest of the group that a run is of."""
    statement = update(StoredRun).where(StoredRun.id == bindparam("row", type_=Text))
    return Prepared(statement.values(group_key=bindparam("group", type_=Text)), dialect, ("row", "group"))


@lru_cache
def states_statement(dialect: str) -> Prepared:
    """Read the keys and states of those trials that are recorded."""
    statement = select(StoredRun.id, StoredRun.key, StoredRun.state).where(
        StoredRun.id.in_(select_list(dialect, "ids"))
    )
    return Prepared(statement, dialect, ("ids",))


@lru_cache
def start_statement(dialect: str) -> Prepared:
    """Insert a trial that begins, or let one that is there begin again, if its state allows that."""
    statement = upsert(
        dialect,
        StoredRun.__table__,
        ("id",),
        ("state", "error", "heartbeat_at", "finished_at", "code_version"),
        _may_change,
        _time_from_now,
    )
    statement = statement.values(started_at=utc_now(), heartbeat_at=utc_now(), error=None, finished_at=None)
    return Prepared(statement, dialect, (*_ROW_COLUMNS, *STARTED))


@lru_cache
def insert_statement(dialect: str) -> Prepared:
    """Insert a trial that was not recorded before its end; a later one of its ends finds it there."""
    changing = (*_END_COLUMNS, "finished_at")
    statement = upsert(dialect, StoredRun.__table__, ("id",), changing, _may_change).values(finished_at=utc_now())
    return Prepared(statement, dialect, tuple(dict.fromkeys((*_ROW_COLUMNS, *NEVER_STARTED, *_END_COLUMNS))))


@lru_cache
def end_statement(dialect: str) -> Prepared:
    """End a trial that is recorded."""
    state = bindparam("state", type_=Text)
    changed = {name: bindparam(name, type_=StoredRun.__table__.c[name].type) for name in _END_COLUMNS}
    statement = update(StoredRun).where(StoredRun.id == bindparam("row", type_=Text), _reachable(state))
    return Prepared(statement.values(**changed, finished_at=utc_now()), dialect, ("row", *_END_COLUMNS))


@lru_cache
def folder_statement(dialect: str) -> Prepared:
    """Set the model folder of a completed trial; where its model is kept is known only when the sweep ends."""
    folder = bindparam("folder", type_=FreeText)
    statement = update(StoredRun).where(
        StoredRun.id == bindparam("row", type_=Text),
        StoredRun.state == literal_column(f"'{RunState.COMPLETED}'"),
        StoredRun.model_folder.is_distinct_from(folder),
    )
    return Prepared(statement.values(model_folder=folder), dialect, ("row", "folder"))


def _time_from_now(new: Any) -> dict[str, Any]:
    """Columns by which a trial that begins again, after its end, is timed anew; one at work only says so again."""
    is_at_work = StoredRun.state == _constant(RunState.RUNNING)
    return {"started_at": case((is_at_work, StoredRun.started_at), else_=new.started_at), "seconds": null()}


def _may_change(new: Any) -> ColumnElement[bool]:
    """Condition under which the row that is there may come to the state of the new row."""
    return _reachable(new.state)


def _reachable(state: Any) -> ColumnElement[bool]:
    reachable = [each for each in RunState if each.predecessors]
    return or_(
        *(and_(state == _constant(each), StoredRun.state.in_(map(_constant, each.predecessors))) for each in reachable)
    )


def _constant(state: RunState) -> ColumnElement[str]:
    """State as a constant of the SQL text: bound parameters would cost time in every trial's statements."""
    return literal_column(f"'{state}'")
