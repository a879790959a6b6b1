"""Trials of a sweep: runs with a parent, known by (sweep, key), each with its whole recipe as parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Insert, and_, delete, literal_column, or_, update
from sqlalchemy.orm import Session

from orchestrator.errors import NotFoundError
from orchestrator.registry.column_types import utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import upsert
from orchestrator.registry.parameter_values import digest, group_digest
from orchestrator.registry.run_frames import trials_frame
from orchestrator.registry.run_metrics import metric_points, write_metrics
from orchestrator.registry.run_parameters import load_parameters, write_parameters
from orchestrator.registry.run_records import state_as_read
from orchestrator.registry.tables import RunRow
from orchestrator.results import MetricEvent, TrialResult
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    import pandas

_RECIPE = "recipe."
_DATA = "data."
"""Beginning of the parameters that say which data a sweep's trials learn from and are scored on."""
_THREADS = "threads_per_trial"


def trial_id(sweep_id: str, key: str) -> str:
    """Id of a trial: the same whenever it is recorded, and by whichever process."""
    return digest([sweep_id, key])[:12]


class SweepTrials:
    """`registry.trials`: writes and reads the trials of sweeps. Natural key: (sweep, key).

    Args:
        lost_after_s: as `Registry` takes it.
    """

    def __init__(self, database: Database, lost_after_s: float) -> None:
        self._database = database
        self._lost_after_s = lost_after_s

    def start(self, sweep_id: str, *, key: str, number: int, parameters: Mapping[str, Any], seed: int) -> str:
        """Record that a trial runs and return its id; a trial that completed or was pruned stays as it is.

        Raises: NotFoundError where there is no such sweep.
        """
        with self._database.session(writing=True) as session:
            sweep = _Sweep(session, sweep_id)
            row, recipe = sweep.row(key, number, parameters, seed)
            row |= {"state": RunState.RUNNING, "attempt": 1}
            session.execute(_start_statement(self._database.dialect), row)
            write_parameters(session, row["id"], recipe)
        return str(row["id"])

    def record(self, sweep_id: str, trials: Sequence[TrialResult]) -> list[str]:
        """Record how trials ended, all in one transaction, and return their ids.

        A trial that ended already keeps its end, unless it now turns out to have completed.

        Raises: NotFoundError where there is no such sweep.
        """
        ids = []
        with self._database.session(writing=True) as session:
            sweep = _Sweep(session, sweep_id)
            for trial in trials:
                row, recipe = sweep.row(trial.key, trial.number, trial.parameters, trial.seed)
                row |= {"state": trial.state, "error": trial.error, "seconds": trial.seconds}
                row |= {"model_folder": trial.model.folder if trial.model else None}
                row |= {"predictions_path": trial.predictions_path}
                session.execute(_end_statement(self._database.dialect), row)
                if trial.model is not None:
                    _set_model_folder(session, row["id"], trial.model.folder)
                write_parameters(session, row["id"], recipe)
                if trial.metrics:
                    points = metric_points([MetricEvent(trial.best_step, "validation", trial.metrics)])
                    write_metrics(session, row["id"], points, final=True)
                ids.append(str(row["id"]))
        return ids

    def drop(self, sweep_id: str) -> None:
        """Delete the trials of a sweep with all that is recorded of them: what they have read is no longer there."""
        with self._database.session(writing=True) as session:
            session.execute(delete(RunRow).where(RunRow.parent_id == sweep_id))

    def set_data(self, sweep_id: str, digests: Mapping[str, str]) -> None:
        """Set which data the trials of a sweep learn from and are scored on: a digest of each split by its name.

        Trials that are recorded from then on have these as parameters, as the sweep does: `data.train_digest`. Trials
        with different ones are no group, whatever the paths in the spec say.
        """
        data = {f"{_DATA}{split}_digest": value for split, value in digests.items()}
        with self._database.session(writing=True) as session:
            write_parameters(session, sweep_id, load_parameters(session, sweep_id) | data)

    def set_metric(self, sweep_id: str, task: str, metric: str) -> None:
        """Set the task of a sweep and of its trials, and the score that ranks them."""
        with self._database.session(writing=True) as session:
            session.execute(
                update(RunRow)
                .where(or_(RunRow.id == sweep_id, RunRow.parent_id == sweep_id))
                .values(task=task, metric=metric)
                .execution_options(synchronize_session=False)
            )

    def frame(self, sweep_id: str) -> pandas.DataFrame:
        """Trials of a sweep by number, a row each, with the columns of `Registry.runs`."""
        with self._database.session(writing=False) as session:
            return trials_frame(session, state_as_read(self._lost_after_s), sweep_id)


class _Sweep:
    """Values that all trials of one sweep share."""

    def __init__(self, session: Session, run_id: str) -> None:
        run = session.get(RunRow, run_id)
        if run is None:
            raise NotFoundError(f"No run {run_id} in the registry.")
        self._run = run
        self._parameters = load_parameters(session, run_id)

    def row(
        self, key: str, number: int, parameters: Mapping[str, Any], seed: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Row of a trial, and its parameters: the sweep's recipe, with the trial's own values and seed in their places.

        The data and the number of threads are the sweep's; they change scores too, so that they are part of the group.
        """
        recipe = {path: value for path, value in self._parameters.items() if path.startswith(_RECIPE)}
        recipe |= {path if "." in path else f"{_RECIPE}{path}": value for path, value in parameters.items()}
        recipe[f"{_RECIPE}seed"] = seed
        recipe |= {path: value for path, value in self._parameters.items() if path.startswith((_DATA, _THREADS))}
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


def _set_model_folder(session: Session, run_id: str, folder: str) -> None:
    """Set the model folder of a completed trial; where its model is kept is known only when the sweep ends."""
    session.execute(
        update(RunRow)
        .where(RunRow.id == run_id, RunRow.state == RunState.COMPLETED)
        .values(model_folder=folder)
        .execution_options(synchronize_session=False)
    )


@lru_cache
def _start_statement(dialect: str) -> Insert:
    statement = upsert(
        dialect, RunRow.__table__, ("id",), ("state", "error", "heartbeat_at", "finished_at"), _may_change
    )
    return statement.values(started_at=utc_now(), heartbeat_at=utc_now(), error=None, finished_at=None)


@lru_cache
def _end_statement(dialect: str) -> Insert:
    changing = ("state", "error", "seconds", "finished_at", "model_folder", "predictions_path")
    return upsert(dialect, RunRow.__table__, ("id",), changing, _may_change).values(finished_at=utc_now())


def _may_change(new: Any) -> ColumnElement[bool]:
    """Condition under which the row that is there may come to the state of the new row."""
    reachable = [state for state in RunState if state.predecessors]
    return or_(
        *(
            and_(new.state == _constant(state), RunRow.state.in_(map(_constant, state.predecessors)))
            for state in reachable
        )
    )


def _constant(state: RunState) -> ColumnElement[str]:
    """State as a constant of the SQL text: bound parameters would cost time in every trial's statements."""
    return literal_column(f"'{state}'")
