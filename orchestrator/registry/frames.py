"""Reading tables: runs, trials, histories, models and data as pandas DataFrames; pandas loads when one is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Select, and_, select
from sqlalchemy.orm import Session

from orchestrator.registry.columns import SPLITS, ColumnField, Field, MetricField
from orchestrator.registry.database import Database
from orchestrator.registry.reading import metric_name, state_as_read
from orchestrator.registry.selection import Selection
from orchestrator.registry.tables import (
    DatasetRow,
    ExperimentRow,
    MetricPointRow,
    MetricRow,
    ModelRow,
    ParameterRow,
    RunDatasetRow,
    RunRow,
    TagRow,
)
from orchestrator.registry.values import decode

if TYPE_CHECKING:
    import pandas

RUN_COLUMNS: dict[str, Any] = {
    "id": RunRow.id,
    "name": RunRow.name,
    "kind": RunRow.kind,
    "state": None,  # as read: it depends on the grace
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


class FrameReading:
    """The part of `Registry` that answers with tables."""

    _database: Database
    _lost_after_s: float

    def runs(
        self, filter: str = "", *, sort: str = "-created_at", limit: int | None = None, trials: bool = True
    ) -> pandas.DataFrame:
        """A row for each run (and trial) that the query means, newest first unless sorted otherwise.

        Columns: those of `RUN_COLUMNS`, `tags`, then `metrics.…` and `params.…` as far as these runs have any.

        Args:
            filter: the query language, such as `metrics.f1 > 0.9 and params.size = 'tiny'`; all when empty.
            sort: a field, `-field` or `field desc` for descending; runs without it come last.
            trials: trials too, not only runs without a parent.

        Raises: InputError with a caret under what is wrong.
        """
        with self._database.session(writing=False) as session:
            state = state_as_read(self._lost_after_s)
            selection = Selection(session, state)
            condition = selection.where(filter)
            conditions = [] if condition is None else [condition]
            if not trials:
                conditions.append(RunRow.parent_id.is_(None))
            key, descends = selection.order(sort)
            rows = list(_ordered(session, _select_runs(state).where(*conditions), key, descends, limit))
            return _run_frame(session, rows)

    def trials(self, run_id: str) -> pandas.DataFrame:
        """A sweep's trials in order, with the columns of `runs`."""
        with self._database.session(writing=False) as session:
            statement = _select_runs(state_as_read(self._lost_after_s)).where(RunRow.parent_id == run_id)
            return _run_frame(session, list(session.execute(statement.order_by(RunRow.number, RunRow.id))))

    def metrics(self, run_id: str, name: str | None = None) -> pandas.DataFrame:
        """A run's measurements, in the order of their steps.

        Args:
            name: one measurement of all splits (`mlm_loss`), or of one (`train.mlm_loss`).
        """
        points = MetricPointRow
        columns = (points.split, points.name, points.step, points.epoch, points.value, points.recorded_at)
        statement = select(*columns).where(points.run_id == run_id)
        split, _, rest = (name or "").partition(".")
        if split in SPLITS and rest:
            statement = statement.where(points.split == split, points.name == rest)
        elif name is not None:
            statement = statement.where(points.name == name)
        with self._database.session(writing=False) as session:
            rows = session.execute(statement.order_by(points.split.desc(), points.name, points.step)).all()
        frame = make_frame(rows, [column.key for column in columns])
        return frame.astype({"step": "int64", "epoch": "float64", "value": "float64"})

    def models(self) -> pandas.DataFrame:
        """Registered models, newest first, with the task of the run each came from."""
        model = ModelRow
        columns = [model.name, model.version, model.head, RunRow.task, model.num_parameters, model.run_id]
        columns += [model.folder, model.digest, model.created_at]
        statement = select(*columns).outerjoin(RunRow, RunRow.id == model.run_id)
        statement = statement.order_by(model.created_at.desc(), model.name, model.version.desc())
        with self._database.session(writing=False) as session:
            return make_frame(session.execute(statement).all(), [column.key for column in columns])

    def datasets(self, run_id: str) -> pandas.DataFrame:
        """The data that a run made or used."""
        data = DatasetRow
        columns = (data.name, data.kind, data.fingerprint, data.path, data.counts, data.files, data.recorded_at)
        statement = select(*columns).join(RunDatasetRow, RunDatasetRow.fingerprint == data.fingerprint)
        with self._database.session(writing=False) as session:
            rows = session.execute(statement.where(RunDatasetRow.run_id == run_id).order_by(data.kind, data.name)).all()
        return make_frame(rows, [column.key for column in columns])


def _select_runs(state: ColumnElement[str]) -> Select[Any]:
    columns = [state if column is None else column for column in RUN_COLUMNS.values()]
    return select(*columns).join(ExperimentRow, ExperimentRow.id == RunRow.experiment_id)


def _ordered(
    session: Session, statement: Select[Any], key: Field, descends: bool, limit: int | None
) -> Iterator[Sequence[Any]]:
    """The rows in order. Runs with a metric are read in its index's order, those without it follow."""

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


def _run_frame(session: Session, rows: Sequence[Sequence[Any]]) -> pandas.DataFrame:
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
            records[run_id][name] = decode(kind, text)
    for run_id, record in records.items():
        record["tags"] = ", ".join(sorted(tags.get(run_id, ())))
    ordered = sorted(metrics, key=lambda metric: (SPLITS.index(metric[0]), metric[1]))
    measured = [f"metrics.{metric_name(*metric)}" for metric in ordered]
    frame = make_frame(list(records.values()), [*names, "tags", *measured, *sorted(parameters)])
    return frame.astype(dict.fromkeys([*measured, "seconds"], "float64") | dict.fromkeys(["seed", "number"], "Int64"))


def make_frame(rows: Sequence[Any], columns: list[str]) -> pandas.DataFrame:
    """A DataFrame whose moments are UTC timestamps, also where it is empty."""
    import pandas

    frame = pandas.DataFrame.from_records(list(rows), columns=columns)
    for name in columns:
        if name.endswith("_at"):
            frame[name] = pandas.to_datetime(frame[name], utc=True)
    return frame
