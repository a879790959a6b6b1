"""Writing what runs did: parameters, metrics, checkpoints, data, models. Each write is an upsert by natural key."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from math import isnan
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from orchestrator.registry.column_types import storable
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import lock_until_commit, upsert
from orchestrator.registry.tables import (
    CheckpointRow,
    DatasetRow,
    MetricPointRow,
    MetricRow,
    ModelRow,
    ParameterRow,
    Row,
    RunDatasetRow,
)
from orchestrator.registry.values import decode, parameter_rows
from orchestrator.results import CheckpointEvent, DatasetResult, MetricEvent, ModelResult

Point = tuple[str, str, int, float | None, float | None]
"""Name, split, step, value, epoch."""


class FactWriting:
    """The part of `Registry` that records what a run did."""

    _database: Database

    def record_metrics(self, run_id: str, events: Iterable[MetricEvent], *, final: bool = False) -> int:
        """Record measurements in one transaction; returns how many. The highest step is the latest value.

        Args:
            final: these are the run's result, which stands over what was reported on the way.
        """
        points = metric_points(events)
        if points:
            with self._database.session(writing=True) as session:
                put_metrics(session, run_id, points, final=final)
        return len(points)

    def record_checkpoints(self, run_id: str, events: Iterable[CheckpointEvent]) -> None:
        """Record checkpoints that are whole on the storage."""
        rows = [{"run_id": run_id, **asdict(event)} for event in events]
        if rows:
            with self._database.session(writing=True) as session:
                put(session, CheckpointRow, ("run_id", "step"), ("path", "digest", "num_bytes"), rows)

    def record_dataset(self, run_id: str, result: DatasetResult) -> None:
        """Record data and that this run used it."""
        row = {
            "fingerprint": result.fingerprint,
            "kind": result.kind,
            "name": result.name,
            "path": result.path,
            "counts": dict(result.counts),
            "files": [asdict(file) for file in result.files],
        }
        self.record_artifact(run_id, row)

    def record_artifact(self, run_id: str, row: Mapping[str, Any]) -> None:
        """Record a row of `datasets` and that this run made or used it."""
        link = {"run_id": run_id, "fingerprint": row["fingerprint"]}
        with self._database.session(writing=True) as session:
            put(session, DatasetRow, ("fingerprint",), ("path", "counts", "files"), [dict(row)])
            put(session, RunDatasetRow, tuple(link), (), [link])

    def register_model(self, name: str, model: ModelResult, run_id: str | None = None) -> int:
        """Register a model folder under a name; returns its version.

        The same weights again are the same version, found in the newest folder from then on: an older one may be gone.
        """
        with self._database.session(writing=True) as session:
            lock_until_commit(session.connection(), f"models/{name}")
            known = select(ModelRow).where(ModelRow.name == name, ModelRow.digest == model.digest)
            row = session.scalar(known)
            if row is None:
                newest = session.scalar(select(func.max(ModelRow.version)).where(ModelRow.name == name))
                row = ModelRow(name=name, version=(newest or 0) + 1, run_id=run_id, **asdict(model))
                session.add(row)
            row.folder = model.folder
            return row.version


def metric_points(events: Iterable[MetricEvent]) -> list[Point]:
    """The events' measurements, one by one; NaN becomes None, which SQL keeps as NULL."""
    return [
        (storable(name), event.split, event.step, None if isnan(value) else float(value), event.epoch)
        for event in events
        for name, value in event.values.items()
    ]


def put_metrics(session: Session, run_id: str, points: Sequence[Point], *, final: bool) -> None:
    """Write points into the history and bring the latest values up to date."""
    latest: dict[tuple[str, str], Point] = {}
    for point in points:
        key = point[:2]
        if key not in latest or point[2] >= latest[key][2]:
            latest[key] = point
    rows = [
        {"run_id": run_id, "name": name, "split": split, "step": step, "value": value, "epoch": epoch}
        for name, split, step, value, epoch in points
    ]
    newest = [
        {"run_id": run_id, "name": name, "split": split, "step": step, "value": value, "final": int(final)}
        for name, split, step, value, _ in latest.values()
    ]
    # A result has no epoch of its own; the point that it confirms keeps the one it was measured at.
    changing = ("value",) if final else ("value", "epoch")
    put(session, MetricPointRow, ("run_id", "split", "name", "step"), changing, rows)
    put(session, MetricRow, ("run_id", "split", "name"), ("step", "value", "final"), newest, newer=_is_newer)


def _is_newer(new: Any) -> ColumnElement[bool]:
    return or_(new.final == 1, and_(MetricRow.final == 0, new.step >= MetricRow.step))


def put(
    session: Session,
    row: type[Row],
    keys: tuple[str, ...],
    update: tuple[str, ...],
    values: Sequence[dict[str, Any]],
    *,
    newer: Callable[[Any], ColumnElement[bool]] | None = None,
) -> None:
    """Upsert plain rows."""
    session.execute(upsert(session.get_bind().dialect.name, row.__table__, keys, update, newer), values)


def put_parameters(session: Session, run_id: str, parameters: Mapping[str, Any]) -> None:
    """Write a run's parameters, all of them: which short names are free depends on the whole."""
    rows = parameter_rows(run_id, parameters)
    if rows:
        put(session, ParameterRow, ("run_id", "path"), ("leaf", "kind", "text", "number"), rows)


def load_parameters(session: Session, run_id: str) -> dict[str, Any]:
    """A run's parameters by dotted path."""
    columns = select(ParameterRow.path, ParameterRow.kind, ParameterRow.text).where(ParameterRow.run_id == run_id)
    return {path: decode(kind, text) for path, kind, text in session.execute(columns.order_by(ParameterRow.path))}
