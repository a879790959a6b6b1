"""Measurements of runs: a history by step, and the latest value of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, bindparam, func, literal_column, or_, select

from orchestrator.registry.column_types import replace_unstorable, utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import upsert
from orchestrator.registry.engines.driver_statements import DriverStatement
from orchestrator.registry.engines.write_transactions import WriteTransaction
from orchestrator.registry.queries.query_fields import METRIC_SPLITS
from orchestrator.registry.record_table import RecordTable, record_table
from orchestrator.registry.run_records import metric_name
from orchestrator.registry.tables import MetricPointRow, MetricRow
from orchestrator.results import MetricEvent

if TYPE_CHECKING:
    import pandas

MetricPoint = tuple[str, str, str, int, float | None, float | None]
"""Run, split, name, step, value, epoch."""


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
        points = metric_points(run_id, events)
        if points:
            with self._database.transaction() as transaction:
                write_metrics(transaction, points, final=final)
        return len(points)

    def latest(self, run_id: str) -> dict[str, float]:
        """Latest values of a run by their names in queries: `f1` is the validation split's, `test.f1` the test's."""
        columns = select(MetricRow.split, MetricRow.name, MetricRow.value).where(MetricRow.run_id == run_id)
        with self._database.session(writing=False) as session:
            rows = session.execute(columns.order_by(MetricRow.split.desc(), MetricRow.name)).all()
        return {metric_name(split, name): float("nan") if value is None else value for split, name, value in rows}

    def last_step(self, run_id: str) -> int | None:
        """Highest step at which something was measured; None where nothing was."""
        with self._database.session(writing=False) as session:
            return session.scalar(select(func.max(MetricRow.step)).where(MetricRow.run_id == run_id))

    def history(self, run_id: str, name: str | None = None) -> pandas.DataFrame:
        """`history_table` as a DataFrame; what is NaN or None there is NaN here."""
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
            rows = session.execute(statement.order_by(points.split.desc(), points.name, points.step)).all()
        return record_table([column.key for column in columns], rows, step="int64", epoch="float64", value="float64")


def metric_points(run_id: str, events: Iterable[MetricEvent]) -> list[MetricPoint]:
    """Measurements of a run's events, one by one; NaN becomes None, which SQL keeps as NULL."""
    return [
        # Only NaN differs from itself.
        (run_id, event.split, _stored_name(name), event.step, float(value) if value == value else None, event.epoch)
        for event in events
        for name, value in event.values.items()
    ]


_stored_name = lru_cache(maxsize=10_000)(replace_unstorable)


def write_metrics(transaction: WriteTransaction, points: Sequence[MetricPoint], *, final: bool) -> None:
    """Write points of any runs into their histories and bring the latest values up to date.

    Args:
        final: whether they are results, of which the last one counts, rather than measurements, of which the one of
            the highest step does.
    """
    latest: dict[tuple[str, str, str], MetricPoint] = {}
    for point in points:
        before = latest.setdefault(point[:3], point)
        if final or point[3] >= before[3]:
            latest[point[:3]] = point
    now = (transaction.now(),)
    transaction.insert_many(_point_statement(transaction.dialect, final), [point + now for point in points])
    transaction.run_many(
        _latest_statement(transaction.dialect), [(*point[:5], int(final)) for point in latest.values()]
    )


@lru_cache
def _point_statement(dialect: str, final: bool) -> DriverStatement:
    # A result has no epoch of its own; the point that it confirms keeps the epoch it was measured at.
    changing = ("value",) if final else ("value", "epoch")
    statement = upsert(dialect, MetricPointRow.__table__, ("run_id", "split", "name", "step"), changing)
    statement = statement.values(recorded_at=func.coalesce(bindparam("now"), utc_now()))
    return DriverStatement(statement, dialect, ("run_id", "split", "name", "step", "value", "epoch", "now"))


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
