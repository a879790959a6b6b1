"""Measurements of runs: a history by step, and the latest value of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from orchestrator.registry.column_types import replace_unstorable
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import upsert_rows
from orchestrator.registry.query_fields import METRIC_SPLITS
from orchestrator.registry.run_frames import make_frame
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
            with self._database.session(writing=True) as session:
                write_metrics(session, points, final=final)
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
        """Measurements of a run, a row each, by split, name and step.

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
        frame = make_frame(rows, [column.key for column in columns])
        return frame.astype({"step": "int64", "epoch": "float64", "value": "float64"})


def metric_points(run_id: str, events: Iterable[MetricEvent]) -> list[MetricPoint]:
    """Measurements of a run's events, one by one; NaN becomes None, which SQL keeps as NULL."""
    return [
        (run_id, event.split, replace_unstorable(name), event.step, None if isnan(value) else float(value), event.epoch)
        for event in events
        for name, value in event.values.items()
    ]


def write_metrics(session: Session, points: Sequence[MetricPoint], *, final: bool) -> None:
    """Write points of any runs into their histories and bring the latest values up to date."""
    latest: dict[tuple[str, str, str], MetricPoint] = {}
    for point in points:
        key = point[:3]
        if key not in latest or point[3] >= latest[key][3]:
            latest[key] = point
    rows = [
        {"run_id": run_id, "name": name, "split": split, "step": step, "value": value, "epoch": epoch}
        for run_id, split, name, step, value, epoch in points
    ]
    newest = [
        {"run_id": run_id, "name": name, "split": split, "step": step, "value": value, "final": int(final)}
        for run_id, split, name, step, value, _ in latest.values()
    ]
    # A result has no epoch of its own; the point that it confirms keeps the epoch it was measured at.
    changing = ("value",) if final else ("value", "epoch")
    upsert_rows(session, MetricPointRow, ("run_id", "split", "name", "step"), changing, rows)
    upsert_rows(session, MetricRow, ("run_id", "split", "name"), ("step", "value", "final"), newest, newer=_is_newer)


def _is_newer(new: Any) -> ColumnElement[bool]:
    return or_(new.final == 1, and_(MetricRow.final == 0, new.step >= MetricRow.step))
