"""Runs and trials as tables of plain values, read in a session, with their tags, latest metrics and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, func, not_, select, type_coerce
from sqlalchemy.orm import Session
from sqlalchemy.sql.visitors import iterate

from orchestrator.registry.attempt_tables import AttemptRow
from orchestrator.registry.collection_pause import paused_collection
from orchestrator.registry.groups.group_keys import group_key
from orchestrator.registry.parameter_values import decode_parameter
from orchestrator.registry.queries.query_fields import (
    METRIC_SPLITS,
)
from orchestrator.registry.queries.query_plans import plan
from orchestrator.registry.queries.run_order import CREATED_AT, ordered
from orchestrator.registry.queries.selection import Selection
from orchestrator.registry.record_table import RecordTable
from orchestrator.registry.run_flags import is_flagged
from orchestrator.registry.run_records import metric_name
from orchestrator.registry.tables import (
    MetricRow,
    ParameterRow,
    RunRow,
    TagRow,
    of_whole_run,
)
from orchestrator.run_states import RunState

RUN_COLUMNS: dict[str, Any] = {
    "id": RunRow.id,
    "name": RunRow.name,
    "kind": RunRow.kind,
    "state": None,  # the state as it is read, given to each function below
    "parent": RunRow.parent_id,
    "number": RunRow.number,
    "task": RunRow.task,
    "metric": RunRow.metric,
    "seed": RunRow.seed,
    "experiment": of_whole_run("name"),
    "group": RunRow.group_key,
    "created_at": RunRow.created_at,
    "started_at": RunRow.started_at,
    "finished_at": RunRow.finished_at,
    "seconds": RunRow.seconds,
    "error": RunRow.error,
}
_IDS_PER_STATEMENT = 5_000
_MOST_LISTED = 1_000
"""Runs up to which their ids are listed before a page of them is put in order."""
_OWN_TABLES = {None, RunRow.__tablename__, AttemptRow.__tablename__}
"""Tables of a run's own columns: the state as it is read depends on the newest attempt."""


@paused_collection()
def list_runs(
    session: Session,
    state: ColumnElement[RunState],
    filter: str,
    sort: str,
    limit: int | None,
    offset: int = 0,
    *,
    trials: bool,
    archived: bool = True,
) -> RecordTable:
    """List the runs that a query selects, as `Registry.runs` describes it."""
    if limit is not None and limit <= _IDS_PER_STATEMENT:
        # the ids of a page are put in order alone: whole rows would be made of all that are not on it
        some = ordered_ids(session, state, filter, sort, limit, offset, trials=trials, archived=archived)
        return list_runs_by_id(session, state, some)
    conditions = selecting(session, state, filter, trials=trials, archived=archived, whole=limit is None)
    key, descends = Selection(session, state).order(sort)
    statement = _select_runs(state).where(*conditions)
    return _with_values(session, list(ordered(session, statement, key, descends, limit, offset)))


def ordered_ids(
    session: Session,
    state: ColumnElement[RunState],
    filter: str,
    sort: str,
    limit: int | None = None,
    offset: int = 0,
    *,
    trials: bool,
    archived: bool,
) -> list[str]:
    """Ids of the runs that a query selects, in the order of `list_runs`."""
    conditions = selecting(session, state, filter, trials=trials, archived=archived, whole=limit is None)
    key, descends = Selection(session, state).order(sort)
    if filter and limit is not None and key == CREATED_AT:
        conditions = _listed_where_few(session, conditions)
    return [
        run_id for (run_id,) in ordered(session, select(RunRow.id).where(*conditions), key, descends, limit, offset)
    ]


def list_runs_by_id(session: Session, state: ColumnElement[RunState], run_ids: Sequence[str]) -> RecordTable:
    """List runs in the order of their ids here, with the columns of `list_runs`; without those that are not there."""
    by_id = {
        row[0]: row
        for start in range(0, len(run_ids), _IDS_PER_STATEMENT)
        for row in session.execute(
            _select_runs(state).where(RunRow.id.in_(run_ids[start : start + _IDS_PER_STATEMENT]))
        )
    }
    return _with_values(session, [by_id[run_id] for run_id in run_ids if run_id in by_id])


def count_runs(
    session: Session, state: ColumnElement[RunState], filter: str, *, trials: bool, archived: bool = True
) -> int:
    """Number of the runs that a query selects."""
    conditions = selecting(session, state, filter, trials=trials, archived=archived, whole=True)
    return session.scalar(select(func.count()).select_from(RunRow).where(*conditions)) or 0


def selecting(
    session: Session, state: ColumnElement[RunState], filter: str, *, trials: bool, archived: bool, whole: bool
) -> list[ColumnElement[bool]]:
    """Conditions of the runs that a query selects. Raises: InputError.

    Args:
        archived: whether archived runs are included; they are too where the query asks for the field `archived`.
        whole: whether every run is wanted that they select, rather than the first ones.
    """
    selection = Selection(session, state)
    condition = selection.where(filter)
    return [
        *([] if condition is None else [plan(session, condition, whole=whole)]),
        *([] if trials else [RunRow.parent_id.is_(None)]),
        *([] if archived or selection.asks_for("archived", filter) else [not_(is_flagged("archived"))]),
    ]


def list_trials(session: Session, state: ColumnElement[RunState], sweep_id: str) -> RecordTable:
    """List the trials of a sweep, in order, with the columns of `list_runs`."""
    statement = _select_runs(state).where(RunRow.parent_id == sweep_id)
    return _with_values(session, list(session.execute(statement.order_by(RunRow.number, RunRow.id))))


def _select_runs(state: ColumnElement[RunState]) -> Select[Any]:
    state_text = type_coerce(state, Text)
    columns = [state_text if column is None else column for column in RUN_COLUMNS.values()]
    return select(*columns, RunRow.code_version)


def _tables(elements: Sequence[ColumnElement[Any]]) -> set[str | None]:
    """Names of the tables whose columns are read."""
    return {getattr(getattr(part, "table", None), "name", None) for element in elements for part in iterate(element)}


def _listed_where_few(session: Session, conditions: list[ColumnElement[bool]]) -> list[ColumnElement[bool]]:
    """The same conditions, on SQLite as a list of ids where they read a run's own columns alone and few runs pass.

    To find these few in the order of an index takes SQLite twice as long as in the order in which runs are stored.
    Where many pass, as many as make a list are soon found, and an index soon fills a page.
    """
    if session.get_bind().dialect.name != "sqlite" or not _tables(conditions) <= _OWN_TABLES:
        return conditions
    few = session.scalars(select(RunRow.id).where(*conditions).limit(_MOST_LISTED + 1)).all()
    return conditions if len(few) > _MOST_LISTED else [RunRow.id.in_(few)]


def _with_values(session: Session, rows: Sequence[Sequence[Any]]) -> RecordTable:
    """Table of runs with their tags, metrics and parameters."""
    names = list(RUN_COLUMNS)
    records = {}
    for *own, code_version in rows:
        record = dict(zip(names, own, strict=True))
        records[record["id"]] = record | {"group": group_key(record["group"], code_version)}
    ids = list(records)
    tags: dict[str, list[str]] = {}
    metrics: set[tuple[str, str]] = set()
    parameters: set[str] = set()
    for start in range(0, len(ids), _IDS_PER_STATEMENT):
        some = ids[start : start + _IDS_PER_STATEMENT]
        for run_id, tag in session.execute(select(TagRow.run_id, TagRow.tag).where(TagRow.run_id.in_(some))):
            tags.setdefault(run_id, []).append(tag)
        latest = select(MetricRow.run_id, MetricRow.split, MetricRow.name, MetricRow.value)
        for run_id, split, name, value in session.execute(latest.where(MetricRow.run_id.in_(some))):
            metrics.add((split, name))
            records[run_id][f"metrics.{metric_name(split, name)}"] = value
        values = select(
            ParameterRow.run_id, ParameterRow.path, ParameterRow.leaf, ParameterRow.kind, ParameterRow.text
        ).where(ParameterRow.run_id.in_(some))
        for run_id, path, leaf, kind, text in session.execute(values):
            name = f"params.{leaf or path}"
            parameters.add(name)
            records[run_id][name] = decode_parameter(kind, text)
    for run_id, record in records.items():
        record["tags"] = ", ".join(sorted(tags.get(run_id, ())))
    ordered = sorted(metrics, key=lambda metric: (METRIC_SPLITS.index(metric[0]), metric[1]))
    measured = [f"metrics.{metric_name(*metric)}" for metric in ordered]
    dtypes = dict.fromkeys([*measured, "seconds"], "float64") | dict.fromkeys(["seed", "number"], "Int64")
    return RecordTable([*names, "tags", *measured, *sorted(parameters)], list(records.values()), dtypes)
