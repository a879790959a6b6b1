"""Writing a sweep's trials: runs with a parent, known by (sweep, key), each with its whole recipe."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Insert, and_, or_, update
from sqlalchemy.orm import Session

from orchestrator.errors import NotFoundError
from orchestrator.registry.column_types import utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import upsert
from orchestrator.registry.facts import load_parameters, metric_points, put_metrics, put_parameters
from orchestrator.registry.lifecycle import OPEN_STATES
from orchestrator.registry.tables import RunRow
from orchestrator.registry.values import digest, group_digest
from orchestrator.results import MetricEvent, TrialResult

_RECIPE = "recipe."


def trial_id(parent_id: str, key: str) -> str:
    """The id of a sweep's trial: the same whenever and by whomever it is recorded."""
    return digest([parent_id, key])[:12]


class TrialWriting:
    """The part of `Registry` that records a sweep's trials."""

    _database: Database

    def start_trial(self, parent_id: str, *, key: str, number: int, parameters: Mapping[str, Any], seed: int) -> str:
        """Record that a trial runs; returns its id, the same on every start. Raises: NotFoundError."""
        with self._database.session(writing=True) as session:
            sweep = _Sweep(session, parent_id)
            row, whole = sweep.row(key, number, parameters, seed)
            row |= {"state": "RUNNING", "attempt": 1}
            session.execute(_started(sweep.dialect), row)
            put_parameters(session, row["id"], whole)
        return str(row["id"])

    def set_metric(self, run_id: str, task: str, metric: str) -> None:
        """Say what a sweep's trials are ranked by, theirs included."""
        with self._database.session(writing=True) as session:
            session.execute(
                update(RunRow)
                .where(or_(RunRow.id == run_id, RunRow.parent_id == run_id))
                .values(task=task, metric=metric)
                .execution_options(synchronize_session=False)
            )

    def record_trials(self, parent_id: str, trials: Sequence[TrialResult]) -> list[str]:
        """Record how trials ended, in one transaction; returns their ids. Raises: NotFoundError."""
        ids = []
        with self._database.session(writing=True) as session:
            sweep = _Sweep(session, parent_id)
            for trial in trials:
                row, whole = sweep.row(trial.key, trial.number, trial.parameters, trial.seed)
                row |= {"state": trial.state, "error": trial.error, "seconds": trial.seconds}
                row |= {"model_folder": trial.model.folder if trial.model else None}
                row |= {"predictions_path": trial.predictions_path}
                session.execute(_ended(sweep.dialect), row)
                if trial.model is not None:
                    _note_model(session, row["id"], trial.model.folder)
                put_parameters(session, row["id"], whole)
                if trial.metrics:
                    points = metric_points([MetricEvent(trial.best_step, "validation", trial.metrics)])
                    put_metrics(session, row["id"], points, final=True)
                ids.append(str(row["id"]))
        return ids


class _Sweep:
    """What a sweep's trials share."""

    def __init__(self, session: Session, run_id: str) -> None:
        run = session.get(RunRow, run_id)
        if run is None:
            raise NotFoundError(f"No run {run_id} in the registry.")
        self._run = run
        self._parameters = load_parameters(session, run_id)
        self.dialect = session.get_bind().dialect.name

    def row(
        self, key: str, number: int, parameters: Mapping[str, Any], seed: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """A trial's row, and its whole recipe: the sweep's with this trial's values and seed in their places."""
        recipe = {path: value for path, value in self._parameters.items() if path.startswith(_RECIPE)}
        recipe |= {path if "." in path else f"{_RECIPE}{path}": value for path, value in parameters.items()}
        recipe[f"{_RECIPE}seed"] = seed
        task = {path: value for path, value in self._parameters.items() if path.startswith("task.")}
        row = {
            "id": trial_id(self._run.id, key),
            "experiment_id": self._run.experiment_id,
            "parent_id": self._run.id,
            "trial_key": key,
            "number": number,
            "kind": "trial",
            "name": f"{self._run.name} #{number}",
            "task": self._run.task,
            "metric": self._run.metric,
            "seed": seed,
            "group_key": group_digest(recipe | task),
            "spec": dict(parameters),
        }
        return row, recipe


def _note_model(session: Session, run_id: str, folder: str) -> None:
    """Only the sweep's end shows which completed trial's model is kept, and where."""
    session.execute(
        update(RunRow)
        .where(RunRow.id == run_id, RunRow.state == "COMPLETED")
        .values(model_folder=folder)
        .execution_options(synchronize_session=False)
    )


@lru_cache
def _started(dialect: str) -> Insert:
    statement = upsert(
        dialect, RunRow.__table__, ("id",), ("state", "error", "heartbeat_at", "finished_at"), _may_start
    )
    return statement.values(started_at=utc_now(), heartbeat_at=utc_now(), error=None, finished_at=None)


@lru_cache
def _ended(dialect: str) -> Insert:
    changing = ("state", "error", "seconds", "finished_at", "model_folder", "predictions_path")
    return upsert(dialect, RunRow.__table__, ("id",), changing, _may_end).values(finished_at=utc_now())


def _may_start(_new: Any) -> ColumnElement[bool]:
    return RunRow.state.not_in(("COMPLETED", "PRUNED"))


def _may_end(new: Any) -> ColumnElement[bool]:
    return or_(RunRow.state.in_(OPEN_STATES), and_(new.state == "COMPLETED", RunRow.state != "COMPLETED"))
