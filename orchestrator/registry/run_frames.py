"""Tables of runs and trials as pandas DataFrames, read in a session. Pandas is imported when a table is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Select, Text, and_, select, type_coerce
from sqlalchemy.orm import Session

from orchestrator.registry.parameter_values import decode_parameter
from orchestrator.registry.query_fields import METRIC_SPLITS, ColumnField, Field, MetricField
from orchestrator.registry.run_records import metric_name
from orchestrator.registry.selection import Selection
from orchestrator.registry.tables import (
    ExperimentRow,
    MetricRow,
    ParameterRow,
    RunRow,
    TagRow,
)
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    import pandas

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
    "experiment": ExperimentRow.name,
    "group": RunRow.group_key,
    "created_at": RunRow.created_at,
    "started_at": RunRow.started_at,
    "finished_at": RunRow.finished_at,
    "seconds": RunRow.seconds,
    "error": RunRow.error,
}
_IDS_PER_STATEMENT = 5_000
_CREATED_AT = ColumnField(RunRow.created_at, "time")


def runs_frame(
    session: Session, state: ColumnElement[RunState], filter: str, sort: str, limit: int | None, *, trials: bool
) -> pandas.DataFrame:
    """Table of the runs that a query selects, as `Registry.runs` describes it."""
    selection = Selection(session, state)
    condition = selection.where(filter)
    conditions = [] if condition is None else [condition]
    if not trials:
        conditions.append(RunRow.parent_id.is_(None))
    key, descends = selection.order(sort)
    return _frame(session, list(_ordered(session, _select_runs(state).where(*conditions), key, descends, limit)))


def trials_frame(session: Session, state: ColumnElement[RunState], sweep_id: str) -> pandas.DataFrame:
    """Table of the trials of a sweep, in order, with the columns of `runs_frame`."""
    statement = _select_runs(state).where(RunRow.parent_id == sweep_id)
    return _frame(session, list(session.execute(statement.order_by(RunRow.number, RunRow.id))))


def _select_runs(state: ColumnElement[RunState]) -> Select[Any]:
    state_text = type_coerce(state, Text)
    columns = [state_text if column is None else column for column in RUN_COLUMNS.values()]
    return select(*columns).join(ExperimentRow, ExperimentRow.id == RunRow.experiment_id)


def _ordered(
    session: Session, statement: Select[Any], key: Field, descends: bool, limit: int | None
) -> Iterator[Sequence[Any]]:
    """Rows in the order asked for. Sorted by a metric, runs that have it are read by its index; the others follow."""

    def directed(column: Any) -> Any:
        return column.desc() if descends else column

    if isinstance(key, MetricField):
        having = statement.join(MetricRow, and_(MetricRow.run_id == RunRow.id, key.rows()))
        having = having.where(MetricRow.value.is_not(None))
        rows = session.execute(
            having.order_by(directed(MetricRow.value), directed(MetricRow.run_id)).limit(limit)
        ).all()
        yield from rows
        if limit is not None:
            limit -= len(rows)
        if limit == 0:
            return
        statement = statement.where(~key.present()).order_by(RunRow.created_at.desc(), RunRow.id.desc())
    else:
        if key == _CREATED_AT:  # as in its index
            order = [directed(RunRow.created_at)]
        else:
            order = [part for column in key.sort_keys() for part in (column.is_(None), directed(column))]
        statement = statement.order_by(*order, directed(RunRow.id))
    yield from session.execute(statement.limit(limit))


def _frame(session: Session, rows: Sequence[Sequence[Any]]) -> pandas.DataFrame:
    names = list(RUN_COLUMNS)
    records = {row[0]: dict(zip(names, row, strict=True)) for row in rows}
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
    frame = make_frame(list(records.values()), [*names, "tags", *measured, *sorted(parameters)])
    return frame.astype(dict.fromkeys([*measured, "seconds"], "float64") | dict.fromkeys(["seed", "number"], "Int64"))


def make_frame(rows: Sequence[Any], columns: list[str]) -> pandas.DataFrame:
    """Make a DataFrame; columns whose names end in `_at` are timestamps in UTC, even without rows."""
    import pandas

    frame = pandas.DataFrame.from_records(list(rows), columns=columns)
    for name in columns:
        if name.endswith("_at"):
            frame[name] = pandas.to_datetime(frame[name], utc=True)
    return frame
