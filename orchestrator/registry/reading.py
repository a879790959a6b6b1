"""Reading records: runs by a prefix of their id, models by name, and what belongs to one run."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, and_, case, func, select

from orchestrator.errors import NotFoundError
from orchestrator.registry.column_types import utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.facts import load_parameters
from orchestrator.registry.records import AttemptRecord, CheckpointRecord, ModelRecord, RunRecord
from orchestrator.registry.tables import (
    AttemptRow,
    CheckpointRow,
    ExperimentRow,
    MetricRow,
    ModelRow,
    Row,
    RunRow,
    TagRow,
)

R = TypeVar("R")
_SHOWN_CANDIDATES = 5


def state_as_read(lost_after_s: float) -> ColumnElement[str]:
    """A run's state, LOST where it runs and its heartbeat is older than the grace."""
    last_sign = func.coalesce(RunRow.heartbeat_at, RunRow.started_at, RunRow.created_at)
    silent = and_(RunRow.state == "RUNNING", last_sign < utc_now(lost_after_s))
    return case((silent, "LOST"), else_=RunRow.state)


class RecordReading:
    """The part of `Registry` that hands out records."""

    _database: Database
    _lost_after_s: float

    def run(self, prefix: str) -> RunRecord:
        """The run or trial whose id begins so. Raises: NotFoundError, naming candidates."""
        found = self._runs(RunRow.id.startswith(prefix.lower(), autoescape=True), limit=_SHOWN_CANDIDATES + 1)
        exact = [run for run in found if run.id == prefix]
        if exact or (len(found) == 1 and prefix):
            return (exact or found)[0]
        if found and prefix:
            raise NotFoundError(f"{prefix!r} begins the ids of several runs; give more of it: {_listed(found)}.")
        recent = self._runs(RunRow.parent_id.is_(None), limit=_SHOWN_CANDIDATES)
        known = f"the latest are: {_listed(recent)}" if recent else "the registry has no run yet"
        raise NotFoundError(f"No run's id begins with {prefix!r}; {known}.")

    def _runs(self, condition: ColumnElement[bool], *, limit: int) -> list[RunRecord]:
        state = state_as_read(self._lost_after_s).label("state")
        statement = select(RunRow, state, ExperimentRow.name, ExperimentRow.fingerprint)
        statement = statement.join(ExperimentRow, ExperimentRow.id == RunRow.experiment_id).where(condition)
        with self._database.session(writing=False) as session:
            rows = session.execute(statement.order_by(RunRow.created_at.desc(), RunRow.id.desc()).limit(limit)).all()
        return [
            _record(RunRecord, row, state=shown, experiment=name, fingerprint=fingerprint)
            for row, shown, name, fingerprint in rows
        ]

    def attempts(self, run_id: str) -> list[AttemptRecord]:
        """A run's starts, in order."""
        rows = select(AttemptRow).where(AttemptRow.run_id == run_id).order_by(AttemptRow.number)
        return self._records(rows, AttemptRecord)

    def checkpoints(self, run_id: str) -> list[CheckpointRecord]:
        """A run's checkpoints, oldest first."""
        rows = select(CheckpointRow).where(CheckpointRow.run_id == run_id).order_by(CheckpointRow.step)
        return self._records(rows, CheckpointRecord)

    def parameters(self, run_id: str) -> dict[str, Any]:
        """A run's parameters by dotted path."""
        with self._database.session(writing=False) as session:
            return load_parameters(session, run_id)

    def tags(self, run_id: str) -> list[str]:
        """A run's tags, sorted."""
        with self._database.session(writing=False) as session:
            return list(session.scalars(select(TagRow.tag).where(TagRow.run_id == run_id).order_by(TagRow.tag)))

    def latest_metrics(self, run_id: str) -> dict[str, float]:
        """A run's latest values by their name in queries: `f1` is validation's, `test.f1` test's."""
        columns = select(MetricRow.split, MetricRow.name, MetricRow.value).where(MetricRow.run_id == run_id)
        with self._database.session(writing=False) as session:
            rows = session.execute(columns.order_by(MetricRow.split.desc(), MetricRow.name)).all()
        return {metric_name(split, name): float("nan") if value is None else value for split, name, value in rows}

    def model(self, name: str) -> ModelRecord:
        """A registered model's newest version, or that of `name@version`. Raises: NotFoundError, naming candidates."""
        plain, at, version = name.rpartition("@")
        exact = at and version.isdecimal() and len(version) < 10
        condition = and_(ModelRow.name == plain, ModelRow.version == int(version)) if exact else ModelRow.name == name
        found = self._records(select(ModelRow).where(condition).order_by(ModelRow.version.desc()).limit(1), ModelRecord)
        if found:
            return found[0]
        recent = select(ModelRow).order_by(ModelRow.created_at.desc(), ModelRow.name).limit(_SHOWN_CANDIDATES)
        labels = ", ".join(model.label for model in self._records(recent, ModelRecord))
        raise NotFoundError(
            f"No model {name!r} is registered; " + (f"the latest are: {labels}." if labels else "there is none yet.")
        )

    def models_of(self, run_id: str) -> list[ModelRecord]:
        """The models that a run registered, newest first."""
        rows = select(ModelRow).where(ModelRow.run_id == run_id).order_by(ModelRow.created_at.desc(), ModelRow.name)
        return self._records(rows, ModelRecord)

    def _records(self, statement: Select[Any], kind: type[R]) -> list[R]:
        with self._database.session(writing=False) as session:
            return [_record(kind, row) for row in session.scalars(statement)]


def metric_name(split: str, name: str) -> str:
    """A measurement's name in queries and columns: validation goes without saying."""
    return name if split == "validation" else f"{split}.{name}"


def _record(kind: type[R], row: Row, **given: Any) -> R:
    values = {field.name: getattr(row, field.name) for field in fields(kind) if field.name not in given}  # type: ignore[arg-type]
    return kind(**values, **given)


def _listed(runs: Sequence[RunRecord]) -> str:
    shown = [f"{run.id} ({run.name[:40]!r})" for run in runs[:_SHOWN_CANDIDATES]]
    return ", ".join(shown) + (", …" if len(runs) > _SHOWN_CANDIDATES else "")
