"""Writing how runs live: made, started, beating, ended. Every call can be repeated without changing more.

`PENDING → RUNNING → COMPLETED | FAILED | STOPPED`. The newest attempt decides: an older one that wakes up late ends
itself and nothing else. Success that comes late stands; nothing overwrites it.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy import insert, or_, select, update
from sqlalchemy.orm import Session

from orchestrator.errors import InputError, NotFoundError
from orchestrator.registry.column_types import utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import upsert
from orchestrator.registry.tables import AttemptRow, ExperimentRow, ParameterRow, RunRow, State, TagRow
from orchestrator.registry.values import flatten, group_digest, parameter_rows

OPEN_STATES = ("PENDING", "RUNNING")
_COLUMNS_OF_THEIR_OWN = ("kind", "name", "tags")


class LifecycleWriting:
    """The part of `Registry` that creates runs and moves them from state to state."""

    _database: Database

    def create_run(
        self,
        *,
        kind: str,
        name: str,
        fingerprint: str,
        spec: Mapping[str, Any],
        experiment: str | None = None,
        task: str | None = None,
        metric: str | None = None,
        seed: int | None = None,
        tags: Sequence[str] = (),
        storage_path: str | None = None,
        run_id: str | None = None,
    ) -> str:
        """Record a new run with its spec as parameters and returns its id; given an id that is there, changes nothing.

        Args:
            name: what a person calls the run.
            fingerprint: the spec's.
            experiment: the spec's name, where it is not the run's.
            metric: the score that ranks, of runs that have a task.
        """
        run_id = run_id or uuid4().hex[:12]
        parameters = flatten({key: value for key, value in spec.items() if key not in _COLUMNS_OF_THEIR_OWN})
        shaping = {path: value for path, value in parameters.items() if "execution" not in path.split(".")}
        row = {
            "id": run_id,
            "kind": kind,
            "name": name,
            "task": task,
            "metric": metric,
            "seed": seed,
            "group_key": group_digest({"kind": kind, **shaping}),
            "spec": dict(spec),
            "storage_path": storage_path,
        }
        with self._database.session(writing=True) as session:
            row["experiment_id"] = self._experiment_id(session, experiment or name, fingerprint)
            statement = upsert(self._database.dialect, RunRow.__table__, ("id",)).returning(RunRow.id)
            if session.execute(statement, row).first() is not None:
                rows = parameter_rows(run_id, parameters)
                if rows:
                    session.execute(insert(ParameterRow), rows)
                self._add_tags(session, run_id, tags)
        return run_id

    def start_attempt(
        self, run_id: str, *, number: int | None = None, host: str | None = None, pid: int | None = None
    ) -> int:
        """Begin a run, or begin it again; returns the attempt's number, which fences off older attempts.

        Raises: InputError for a run that has completed, NotFoundError.
        """
        with self._database.session(writing=True) as session:
            run = _locked(session, run_id)
            if run.state == "COMPLETED":
                raise InputError(f"Run {run_id} has completed; there is nothing to resume.")
            if number is not None and number <= run.attempt:
                return number
            number = run.attempt + 1 if number is None else number
            died_at = run.heartbeat_at or utc_now()
            _end_attempts(session, run_id, "LOST", "another attempt took over", before=number, at=died_at)
            session.add(AttemptRow(run_id=run_id, number=number, host=host, pid=pid))
            run.state, run.attempt, run.host, run.pid = "RUNNING", number, host, pid
            run.error, run.finished_at = None, None
            run.heartbeat_at = utc_now()
            if run.started_at is None:
                run.started_at = utc_now()
        return number

    def heartbeat(self, run_id: str, attempt: int | None = None) -> bool:
        """Say that the run's driver (and so its running trials) is alive; False where another attempt took over."""
        mine = RunRow.id == run_id
        if attempt is not None:
            mine &= RunRow.attempt == attempt
        running = RunRow.state == "RUNNING"
        with self._database.session(writing=True) as session:
            beat = update(RunRow).values(heartbeat_at=utc_now()).execution_options(synchronize_session=False)
            owned = session.scalar(select(RunRow.id).where(mine)) is not None
            if owned:
                session.execute(beat.where(or_(RunRow.id == run_id, RunRow.parent_id == run_id), running))
        return owned

    def finish_run(
        self,
        run_id: str,
        state: State,
        *,
        error: str | None = None,
        attempt: int | None = None,
        model_folder: str | None = None,
        predictions_path: str | None = None,
    ) -> bool:
        """End a run and its attempt (the newest when left out); returns whether that is now the run's state.

        Trials that were still open are stopped with it. Raises: NotFoundError.
        """
        with self._database.session(writing=True) as session:
            run = _locked(session, run_id)
            if attempt is not None and attempt < run.attempt:
                _end_attempts(session, run_id, state, error, before=attempt + 1, after=attempt - 1)
                return False
            if not _may_end(run.state, state):
                return run.state == state
            _end_attempts(session, run_id, state, error, before=run.attempt + 1)
            run.state, run.error, run.seconds = state, error, _seconds_spent(session, run_id)
            run.model_folder, run.predictions_path = model_folder, predictions_path
            run.finished_at = utc_now()
            session.execute(
                update(RunRow)
                .where(RunRow.parent_id == run_id, RunRow.state.in_(OPEN_STATES))
                .values(state="STOPPED", error="its sweep ended", finished_at=utc_now())
                .execution_options(synchronize_session=False)
            )
        return True

    def tag(self, run_id: str, *tags: str) -> None:
        """Add words to find a run by."""
        with self._database.session(writing=True) as session:
            self._add_tags(session, run_id, tags)

    def _add_tags(self, session: Session, run_id: str, tags: Sequence[str]) -> None:
        rows = [{"run_id": run_id, "tag": tag} for tag in tags]
        if rows:
            session.execute(upsert(self._database.dialect, TagRow.__table__, ("run_id", "tag")), rows)

    def _experiment_id(self, session: Session, name: str, fingerprint: str) -> int:
        key = {"fingerprint": fingerprint, "name": name}
        session.execute(upsert(self._database.dialect, ExperimentRow.__table__, tuple(key)), key)
        return session.scalars(select(ExperimentRow.id).filter_by(**key)).one()


def _locked(session: Session, run_id: str) -> RunRow:
    run = session.get(RunRow, run_id, with_for_update=True)
    if run is None:
        raise NotFoundError(f"No run {run_id} in the registry.")
    return run


def _may_end(old: str, new: str) -> bool:
    return old in OPEN_STATES or (new == "COMPLETED" and old != "COMPLETED")


def _end_attempts(
    session: Session, run_id: str, state: str, error: str | None, *, before: int, after: int = 0, at: Any = None
) -> None:
    """End the attempts that are still open, of numbers between the two; now, or at their driver's last heartbeat."""
    session.execute(
        update(AttemptRow)
        .where(AttemptRow.run_id == run_id, AttemptRow.number < before, AttemptRow.number > after)
        .where(AttemptRow.state == "RUNNING")
        .values(state=state, error=error, finished_at=utc_now() if at is None else at)
        .execution_options(synchronize_session=False)
    )


def _seconds_spent(session: Session, run_id: str) -> float:
    """The time of all attempts together."""
    times = select(AttemptRow.started_at, AttemptRow.finished_at).where(AttemptRow.run_id == run_id)
    return sum(
        max(0.0, (finished_at - started_at).total_seconds())
        for started_at, finished_at in session.execute(times)
        if finished_at is not None
    )
