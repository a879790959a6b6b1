"""Measurements of runs: a history by step, and the latest value of each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, case, func, literal_column, or_, select

from orchestrator.errors import InputError
from orchestrator.registry.column_types import replace_unstorable
from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import upsert
from orchestrator.registry.engines.driver_statements import DriverStatement
from orchestrator.registry.engines.write_transactions import WriteTransaction
from orchestrator.registry.queries.query_tree import METRIC_SPLITS
from orchestrator.registry.record_table import RecordTable, record_table
from orchestrator.registry.run_records import metric_name
from orchestrator.registry.tables import MetricPointRow, MetricRow, RunRow
from orchestrator.results import MetricEvent

if TYPE_CHECKING:
    import pandas

Curves = dict[tuple[str, str, str], tuple[list[int], list[float | None], list[float | None]]]
"""Steps, values and epochs of points by their run, split and name."""
_MANY = 10
"""Points of a curve that are worth a statement of their own; fewer are written with those of other curves."""


class RunMetrics:
    """`registry.metrics`: writes and reads measurements. Natural key: (run, split, name, step)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, run_id: str, events: Iterable[MetricEvent], *, final: bool = False) -> int:
        """Record measurements and return how many; the value of the highest step becomes the latest value.

        Args:
            final: whether these belong to the run's result: they become the latest values whatever their step, and
                stay so until another result is recorded.
        """
        curves = metric_curves([(run_id, events)])
        if curves:
            with self._database.transaction() as transaction:
                write_metrics(transaction, curves, final=final)
        return sum(len(steps) for steps, _, _ in curves.values())

    def latest(self, run_id: str) -> dict[str, float]:
        """Latest values of a run by their names in queries: `f1` is the validation split's, `test.f1` the test's."""
        columns = select(MetricRow.split, MetricRow.name, MetricRow.value).where(MetricRow.run_id == run_id)
        with self._database.session(writing=False) as session:
            rows = session.execute(columns.order_by(MetricRow.split.desc(), MetricRow.name)).all()
        return {metric_name(split, name): _measured(value) for split, name, value in rows}

    def last_step(self, run_id: str) -> int | None:
        """Highest step at which something was measured; None where nothing was."""
        with self._database.session(writing=False) as session:
            return session.scalar(select(func.max(MetricRow.step)).where(MetricRow.run_id == run_id))

    def history(self, run_id: str, name: str | None = None) -> pandas.DataFrame:
        """`history_table` as a DataFrame."""
        return self.history_table(run_id, name).frame()

    def history_table(self, run_id: str, name: str | None = None) -> RecordTable:
        """Measurements of a run, a record each, by split, name and step.

        Args:
            name: one measurement of every split (`mlm_loss`) or of one split (`train.mlm_loss`); all when None.
        """
        points = MetricPointRow
        columns = (points.split, points.name, points.step, points.epoch, points.value, points.recorded_at)
        statement = select(*columns).where(points.run_id == run_id)
        split, _, rest = (name or "").partition(".")
        if split in METRIC_SPLITS and rest:
            statement = statement.where(points.split == split, points.name == rest)
        elif name is not None:
            statement = statement.where(points.name == name)
        with self._database.session(writing=False) as session:
            found = session.execute(statement.order_by(points.split.desc(), points.name, points.step))
            rows = [(*row[:4], _measured(row.value), row.recorded_at) for row in found]
        return record_table([column.key for column in columns], rows, step="int64", epoch="float64", value="float64")


def _measured(value: float | None) -> float:
    return math.nan if value is None else value  # SQLite keeps no NaN


def metric_curves(measured: Iterable[tuple[str, Iterable[MetricEvent]]]) -> Curves:
    """Measurements of runs' events, by curve; NaN becomes None, which SQL keeps as NULL. Raises: InputError."""
    curves: Curves = {}
    try:
        for run_id, events in measured:
            _add_to_curves(curves, run_id, events)
    except OverflowError:
        raise InputError("A measurement is larger than any number that the registry holds, 1.8e308.") from None
    return curves


def _add_to_curves(curves: Curves, run_id: str, events: Iterable[MetricEvent]) -> None:
    for event in events:
        step, split = int(event.step), event.split  # plain numbers: a server takes them as text
        epoch = None if event.epoch is None else float(event.epoch)
        for name, value in event.values.items():
            key = (run_id, split, _stored_name(name))
            curve = curves.get(key)
            if curve is None:
                curve = curves[key] = ([], [], [])
            curve[0].append(step)
            curve[1].append(float(value) if value == value else None)  # only NaN differs from itself
            curve[2].append(epoch)


_stored_name = lru_cache(maxsize=10_000)(replace_unstorable)


def write_metrics(transaction: WriteTransaction, curves: Curves, *, final: bool) -> None:
    """Write points of any runs into their histories and bring the latest values up to date.

    Args:
        final: whether they are results, of which the last one counts, rather than measurements, of which the one of
            the highest step does.
    """
    dialect = transaction.dialect
    statement, now = _point_statement(dialect, final), transaction.now()
    few, repeated, latest = [], [], []
    for key, curve in curves.items():
        steps, values, epochs = curve
        number = len(steps)
        if dialect != "sqlite" and len(set(steps)) < number:
            repeated += [(*key, *point, *now) for point in zip(*curve, strict=True)]
        elif number < _MANY:
            few += [(*key, *point, *now) for point in zip(*curve, strict=True)]
        else:
            has_epochs = dialect != "sqlite" or any(epoch is not None for epoch in epochs)
            transaction.insert_columns(statement, (*key, steps, values, epochs if has_epochs else None, *now), number)
        newest = number - 1 if final or number == 1 else number - 1 - steps[::-1].index(max(steps))
        latest.append((*key, steps[newest], values[newest], int(final)))
    transaction.insert_rows(statement, few)
    transaction.run_many(statement, repeated)  # a server's statement cannot change a row twice
    transaction.insert_rows(_latest_statement(dialect), latest)


@lru_cache
def _point_statement(dialect: str, final: bool) -> DriverStatement:
    # A result has no epoch of its own; the point that it confirms keeps the epoch it was measured at.
    keys, changing = ("run_id", "split", "name", "step"), ("value",) if final else ("value", "epoch")
    clock = ("recorded_at",) if dialect == "sqlite" else ()
    statement = upsert(dialect, MetricPointRow.__table__, keys, changing, also=None if final else _measured_anew)
    return DriverStatement(statement, dialect, (*keys, "value", "epoch", *clock))


def _measured_anew(new: Any) -> dict[str, ColumnElement[Any]]:
    """The new time, where a run has begun again since a point was recorded; a repeated report changes nothing."""
    # As text: in ON CONFLICT nothing correlates a subquery with the row that is there.
    own_run: ColumnElement[str] = literal_column("metric_points.run_id")
    started_at = select(RunRow.started_at).where(RunRow.key == own_run).scalar_subquery()
    recorded_at = MetricPointRow.recorded_at
    return {"recorded_at": case((recorded_at < started_at, new.recorded_at), else_=recorded_at)}


@lru_cache
def _latest_statement(dialect: str) -> DriverStatement:
    statement = upsert(
        dialect, MetricRow.__table__, ("run_id", "split", "name"), ("step", "value", "final"), newer=_is_newer
    )
    return DriverStatement(statement, dialect, ("run_id", "split", "name", "step", "value", "final"))


def _is_newer(new: Any) -> ColumnElement[bool]:
    return or_(
        new.final == literal_column("1"),
        and_(MetricRow.final == literal_column("0"), new.step >= MetricRow.step),
    )
