"""Trials of a sweep: runs with a parent, known by (sweep, key), each with its whole recipe as parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Insert, and_, delete, literal_column, or_, select, update
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
from orchestrator.results import MetricEvent, TrialChange, TrialEvents, TrialResult, TrialStart
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    import pandas

_RECIPE = "recipe."
_DATA = "data."
"""Beginning of the parameters that say which data a sweep's trials learn from and are scored on."""
_THREADS = "threads_per_trial"
_TASK = "task."
_STARTED = {"state": RunState.RUNNING, "attempt": 1}
_CHANGES_PER_STATEMENT = 500
"""Changes of trials that are written at once: a statement has no room for the ids of any number."""


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

    def record(self, sweep_id: str, changes: Sequence[TrialChange]) -> list[str]:
        """Record what became of trials, all in one transaction, and return the trial's id for each change.

        A trial that completed or was pruned does not run again. One that ended keeps its end, unless it now turns out
        to have completed; one that failed or was stopped may turn out to have been pruned, too.

        Raises: NotFoundError where there is no such sweep.
        """
        with self._database.session(writing=True) as session:
            sweep = _Sweep(session, sweep_id)
            for begin in range(0, len(changes), _CHANGES_PER_STATEMENT):
                sweep.write(changes[begin : begin + _CHANGES_PER_STATEMENT])
        return [trial_id(sweep_id, change.key) for change in changes]

    def states(self, sweep_id: str) -> dict[str, RunState]:
        """State of each trial of a sweep by its key, as it was recorded."""
        with self._database.session(writing=False) as session:
            rows = session.execute(select(RunRow.trial_key, RunRow.state).where(RunRow.parent_id == sweep_id))
            return {str(key): state for key, state in rows}

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
            write_parameters(session, {sweep_id: load_parameters(session, sweep_id) | data})

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
    """A sweep whose trials are written in one session, with the values that all of them share."""

    def __init__(self, session: Session, run_id: str) -> None:
        run = session.get(RunRow, run_id)
        if run is None:
            raise NotFoundError(f"No run {run_id} in the registry.")
        self._session = session
        self._dialect = session.get_bind().dialect.name
        self._run = run
        parameters = load_parameters(session, run_id)
        self._recipe, self._task, self._shared = (
            {path: value for path, value in parameters.items() if path.startswith(beginning)}
            for beginning in (_RECIPE, _TASK, (_DATA, _THREADS))
        )

    def write(self, changes: Sequence[TrialChange]) -> None:
        """Write what became of trials; the result of each is the last of its changes."""
        starts = [change for change in changes if isinstance(change, TrialStart)]
        states = self._states([self._id(change) for change in changes])
        new = {self._id(change): self._recipe_of(change) for change in changes if not isinstance(change, TrialEvents)}
        new = {row: recipe for row, recipe in new.items() if row not in states}
        self._execute(_start_statement, [self._row(start) | _STARTED for start in starts])
        for start in starts:
            before = states.get(self._id(start), RunState.PENDING)
            states[self._id(start)] = RunState.RUNNING if before.may_become(RunState.RUNNING) else before
        results = [change for change in changes if isinstance(change, TrialResult)]
        ends = [each for each in results if states.get(self._id(each), RunState.PENDING).may_become(each.state)]
        self._execute(_end_statement, [self._row(result) | _end_values(result) for result in ends])
        for result in results:
            if result.model is not None:
                _set_model_folder(self._session, self._id(result), result.model.folder)
        write_parameters(self._session, new)
        measured = [(self._id(change), change.events) for change in changes if isinstance(change, TrialEvents)]
        self._write_metrics(measured, final=False)
        self._write_metrics([(self._id(result), _result_events(result)) for result in ends], final=True)

    def _states(self, ids: Sequence[str]) -> dict[str, RunState]:
        """State of each of these trials that is recorded already."""
        rows = self._session.execute(select(RunRow.id, RunRow.state).where(RunRow.id.in_(ids)))
        return {row.id: row.state for row in rows}

    def _execute(self, statement: Callable[[str], Insert], rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self._session.execute(statement(self._dialect), rows)

    def _write_metrics(self, measured: Sequence[tuple[str, Sequence[MetricEvent]]], *, final: bool) -> None:
        points = [point for row, events in measured for point in metric_points(row, events)]
        write_metrics(self._session, points, final=final)

    def _id(self, change: TrialChange) -> str:
        return trial_id(self._run.id, change.key)

    def _recipe_of(self, trial: TrialStart | TrialResult) -> dict[str, Any]:
        """Parameters of a trial: the sweep's recipe, with the trial's own values and seed in their places.

        The data and the number of threads are the sweep's; they change scores too, so that they are part of the group.
        """
        own = {path if "." in path else f"{_RECIPE}{path}": value for path, value in trial.parameters.items()}
        return self._recipe | own | {f"{_RECIPE}seed": trial.seed} | self._shared

    def _row(self, trial: TrialStart | TrialResult) -> dict[str, Any]:
        """Row of a trial."""
        return {
            "id": self._id(trial),
            "experiment_id": self._run.experiment_id,
            "parent_id": self._run.id,
            "trial_key": trial.key,
            "number": trial.number,
            "kind": "trial",
            "name": f"{self._run.name} #{trial.number}",
            "task": self._run.task,
            "metric": self._run.metric,
            "seed": trial.seed,
            "group_key": group_digest(self._recipe_of(trial) | self._task),
            "spec": dict(trial.parameters),
        }


def _end_values(result: TrialResult) -> dict[str, Any]:
    """Values of a trial's row that are known when it has ended."""
    return {
        "state": result.state,
        "error": result.error,
        "seconds": result.seconds,
        "model_folder": result.model.folder if result.model else None,
        "predictions_path": result.predictions_path,
    }


def _result_events(result: TrialResult) -> list[MetricEvent]:
    """Scores of a result as the measurements of its best step."""
    return [MetricEvent(result.best_step, "validation", result.metrics)]


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
