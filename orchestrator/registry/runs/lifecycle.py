"""Lifecycle of runs: create, start an attempt, send heartbeats, finish.

`orchestrator.run_states` says which state may follow which.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, func, insert, or_, select, update
from sqlalchemy.orm import Session

from orchestrator.errors import InputError, NotFoundError
from orchestrator.provenance.machine import MadeWith
from orchestrator.registry.attempt_tables import AttemptRow, CodeDiffRow
from orchestrator.registry.column_types import replace_unstorable, utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.engines.dialects import upsert, upsert_rows
from orchestrator.registry.group_tables import OpenRunRow
from orchestrator.registry.groups.roll_up import keys_of_runs, open_run, roll_up, roll_up_again, roll_up_tests
from orchestrator.registry.marks import add_tags
from orchestrator.registry.parameter_values import encode_parameter, flatten, run_group_digest
from orchestrator.registry.runs.run_names import record_names
from orchestrator.registry.runs.run_parameters import load_parameters
from orchestrator.registry.tables import ParameterRow, StoredRun
from orchestrator.results import WorkersEvent
from orchestrator.run_ids import new_run_id
from orchestrator.run_states import RunState

_COLUMNS_OF_THEIR_OWN = ("kind", "name", "tags")
"""Fields of a spec that are columns of the run, and so no parameters."""


class RunLifecycle:
    """`registry.lifecycle`: creates runs and moves them from state to state."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def remove(self, run_id: str) -> None:
        """Delete a run that has ended, with its trials and all that is recorded of them; one at work stays."""
        ended = [state for state in RunState if state.is_final]
        with self._database.session(writing=True) as session:
            keys = keys_of_runs(session, [run_id])
            session.execute(delete(StoredRun).where(StoredRun.id == run_id, StoredRun.state.in_(ended)))
            roll_up_again(session, keys)
            roll_up_tests(session)

    def create(
        self,
        *,
        kind: str,
        name: str,
        fingerprint: str,
        spec: Mapping[str, Any],
        task: str | None = None,
        metric: str | None = None,
        seed: int | None = None,
        tags: Sequence[str] = (),
        storage_path: str | None = None,
        run_id: str | None = None,
    ) -> str:
        """Create a run, with its spec as parameters, and return its id. A `run_id` that is there changes nothing.

        Args:
            name: what a person calls the run; its experiment is called the same.
            fingerprint: digest of the spec.
            metric: score that ranks the runs of the task; None for a run without a task.
            run_id: id of the run; a new one when left out.
        """
        run_id = run_id or new_run_id()
        row = {
            "id": run_id,
            "kind": kind,
            "name": name,
            "task": task,
            "metric": metric,
            "seed": seed,
            "spec": dict(spec),
            "storage_path": storage_path,
        }
        with self._database.session(writing=True) as session:
            _insert_run(session, row, fingerprint, tags)
        return run_id

    def reopen(self, run_id: str, spec: Mapping[str, Any], fingerprint: str) -> None:
        """Give a run a spec with more work, under its id; a completed one is STOPPED until its next attempt.

        Raises: NotFoundError.
        """
        with self._database.session(writing=True) as session:
            run = _locked(session, run_id)
            open_run(session, run_id)
            _replace_spec(session, run, spec, fingerprint)
            if run.state == RunState.COMPLETED:
                run.state, run.error = RunState.STOPPED, "it has more to do"

    def start_attempt(
        self,
        run_id: str,
        *,
        number: int | None = None,
        host: str | None = None,
        pid: int | None = None,
        job_id: str | None = None,
        made_with: MadeWith | None = None,
    ) -> int:
        """Start an attempt of a run and return its number; older attempts are fenced off from then on.

        An attempt that never ended is lost: the trials that it had begun stopped when they were last known to run.

        Args:
            number: number of the attempt, where it was announced before: the same process may start it twice, which
                changes nothing. The next number when left out.
            job_id: id of the job on a cluster whose driver this is.
            made_with: code, command and machine of the driver.

        Raises: InputError for a run that cannot run again, or whose attempt of this number is another process's;
            NotFoundError.
        """
        with self._database.session(writing=True) as session:
            run = _locked(session, run_id)
            if not run.state.may_become(RunState.RUNNING):
                raise InputError(f"Run {run_id} has ended as {run.state}; there is nothing to resume.")
            if number is not None and number <= run.attempt:
                _refuse_others(session.get(AttemptRow, (run_id, number)), host, pid)
                return number
            open_run(session, run_id)
            number = run.attempt + 1 if number is None else number
            died_at = run.heartbeat_at or utc_now()
            message = "another attempt took over"
            lost = _end_attempts(session, run_id, RunState.LOST, message, before=number, at=died_at)
            if lost:
                run.seconds = (run.seconds or 0.0) + sum(lost)
                _stop_trials(session, run_id, message, at=func.coalesce(StoredRun.heartbeat_at, died_at))
            own = _attempt_columns(session, made_with)
            session.add(AttemptRow(run_id=run_id, number=number, host=host, pid=pid, job_id=job_id, **own))
            run.code_version = made_with.code.code_version if made_with else None
            run.state, run.attempt, run.host, run.pid = RunState.RUNNING, number, host, pid
            run.error, run.finished_at = None, None
            run.heartbeat_at = utc_now()
            if run.started_at is None:
                run.started_at = utc_now()
        return number

    def record_workers(self, run_id: str, number: int, events: Iterable[WorkersEvent]) -> None:
        """Record groups of training workers of an attempt. A group that begins earlier than one before replaces it."""
        with self._database.session(writing=True) as session:
            attempt = session.get(AttemptRow, (run_id, number))
            if attempt is None:
                raise NotFoundError(f"Run {run_id} has no attempt {number}.")
            attempt.workers = _with_groups(attempt, events)

    def heartbeat(self, run_id: str, attempt: int | None = None) -> bool:
        """Record that the driver of a run, and so the run's running trials, are alive.

        Returns False, and records nothing, where a newer attempt has superseded `attempt`.
        """
        owned_by_attempt = StoredRun.id == run_id
        if attempt is not None:
            owned_by_attempt &= StoredRun.attempt == attempt
        running = StoredRun.state == RunState.RUNNING
        with self._database.session(writing=True) as session:
            beat = update(StoredRun).values(heartbeat_at=utc_now()).execution_options(synchronize_session=False)
            is_owned = session.scalar(select(StoredRun.id).where(owned_by_attempt)) is not None
            if is_owned:
                session.execute(beat.where(or_(StoredRun.id == run_id, StoredRun.parent_id == run_id), running))
        return is_owned

    def finish(
        self,
        run_id: str,
        state: RunState,
        *,
        error: str | None = None,
        attempt: int | None = None,
        seconds: float | None = None,
        model_folder: str | None = None,
        predictions_path: str | None = None,
    ) -> bool:
        """Finish a run and its open attempts, and stop its open trials; returns whether the run is now in `state`.

        Args:
            state: COMPLETED, FAILED or STOPPED.
            attempt: number of the attempt that ends; the newest when left out. An older one ends itself alone.
            seconds: duration of that attempt by a clock that never jumps; by the database's clock when left out.

        Raises: NotFoundError.
        """
        assert state.is_final, state
        assert not state.is_for_trials_only, state
        with self._database.session(writing=True) as session:
            run = _locked(session, run_id)
            if attempt is not None and attempt < run.attempt:
                _end_attempts(session, run_id, state, error, before=attempt + 1, after=attempt - 1)
                return False
            if not run.state.may_become(state):
                return run.state == state
            ended = _end_attempts(session, run_id, state, error, before=run.attempt + 1)
            spent = seconds if ended and seconds is not None else sum(ended)
            run.state, run.error, run.seconds = state, error, (run.seconds or 0.0) + spent
            run.model_folder, run.predictions_path = model_folder, predictions_path
            run.finished_at = utc_now()
            _stop_trials(session, run_id, "its sweep ended", at=utc_now())
            roll_up(session)
        return True


def _locked(session: Session, run_id: str) -> StoredRun:
    run = session.get(StoredRun, run_id, with_for_update=True)
    if run is None or run.removed_at is not None:
        raise NotFoundError(f"No run {run_id} in the registry.")
    return run


def _stop_trials(session: Session, run_id: str, error: str, *, at: Any) -> None:
    """Stop the open trials of a run, at a time."""
    session.execute(
        update(StoredRun)
        .where(StoredRun.parent_id == run_id, StoredRun.state.in_((RunState.PENDING, RunState.RUNNING)))
        .values(state=RunState.STOPPED, error=error, finished_at=at)
        .execution_options(synchronize_session=False)
    )


def _refuse_others(attempt: AttemptRow | None, host: str | None, pid: int | None) -> None:
    """Refuse an attempt that another process has started. Raises: InputError."""
    mine = (None if host is None else replace_unstorable(host), pid)
    if attempt is not None and (attempt.host, attempt.pid) != mine:
        raise InputError(
            f"Run {attempt.run_id} was resumed by process {attempt.pid} on {attempt.host} just now; leave it to that "
            "one, or end it, then resume."
        )


def _end_attempts(
    session: Session, run_id: str, state: RunState, error: str | None, *, before: int, after: int = 0, at: Any = None
) -> list[float]:
    """End the open attempts whose numbers lie between `after` and `before`, both excluded.

    Returns their durations in seconds, by the database's clock.

    Args:
        at: when they ended; now when left out.
    """
    times = session.execute(
        update(AttemptRow)
        .where(AttemptRow.run_id == run_id, AttemptRow.number < before, AttemptRow.number > after)
        .where(AttemptRow.state == RunState.RUNNING)
        .values(state=state, error=error, finished_at=utc_now() if at is None else at)
        .returning(AttemptRow.started_at, AttemptRow.finished_at)
        .execution_options(synchronize_session=False)
    ).all()
    return [
        max(0.0, (finished_at - started_at).total_seconds())
        for started_at, finished_at in times
        if finished_at is not None
    ]


def _insert_run(session: Session, row: Mapping[str, Any], fingerprint: str, tags: Sequence[str]) -> None:
    """Insert a run with all that its spec says; a run of that id which is there already stays as it is.

    Args:
        row: columns of the run, its spec among them; its group follows from them.
        fingerprint: digest of the spec.
    """
    parameters = _parameters_of(row["spec"])
    given = {
        **row,
        "fingerprint": fingerprint,
        "group_key": run_group_digest(row["kind"], parameters),
    }
    statement = upsert(session.get_bind().dialect.name, StoredRun.__table__, ("id",)).returning(StoredRun.id)
    if session.execute(statement, given).first() is None:
        if session.get_one(StoredRun, row["id"]).removed_at is not None:
            raise InputError(f"run {row['id']} was removed; to bring it back: orchestrator runs restore {row['id']}")
        return
    if parameters:
        record_names(session, parameters)
        rows = [{"run_id": row["id"], "path": path, **_encoded(value)} for path, value in parameters.items()]
        session.execute(insert(ParameterRow), rows)
    session.execute(insert(OpenRunRow), [{"run_id": row["id"]}])
    add_tags(session, row["id"], tags)


def _replace_spec(session: Session, run: StoredRun, spec: Mapping[str, Any], fingerprint: str) -> None:
    """Replace the spec of a run by one with the same fields."""
    parameters = load_parameters(session, run.id)
    for path, value in _parameters_of(spec).items():
        if path in parameters and parameters[path] != value:
            parameters[path] = value
            row = update(ParameterRow).where(ParameterRow.run_id == run.id, ParameterRow.path == path)
            session.execute(row.values(**_encoded(value)))
    run.spec, run.fingerprint, run.group_key = dict(spec), fingerprint, run_group_digest(run.kind, parameters)


def _parameters_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    flat = flatten({key: value for key, value in spec.items() if key not in _COLUMNS_OF_THEIR_OWN})
    return {replace_unstorable(path): value for path, value in flat.items()}


def _encoded(value: Any) -> dict[str, Any]:
    return dict(zip(("kind", "text", "number"), encode_parameter(value), strict=True))


def _attempt_columns(session: Session, made_with: MadeWith | None) -> dict[str, Any]:
    """Columns of an attempt's row; the changes of its code are written to a row of their own."""
    if made_with is None:
        return {}
    code = asdict(made_with.code)
    diff, digest = code.pop("diff"), code["diff_digest"]
    if diff is not None:
        upsert_rows(session, CodeDiffRow, ("digest",), (), [{"digest": digest, "diff": diff}])
    return {
        "code": code,
        "diff_digest": digest if diff is not None else None,
        "command": made_with.command,
        "overrides": list(made_with.overrides),
        "environment": dict(made_with.environment),
    }


def _with_groups(attempt: AttemptRow, events: Iterable[WorkersEvent]) -> list[dict[str, Any]]:
    """The attempt's groups with those that have begun since; one that begins earlier than others replaces these."""
    groups: list[dict[str, Any]] = attempt.workers or []
    for event in events:
        groups = [group for group in groups if group["first_step"] < event.first_step]
        if not groups or groups[-1]["hosts"] != list(event.hosts):
            groups.append(_group(event, attempt))
    return groups


def _group(event: WorkersEvent, attempt: AttemptRow) -> dict[str, Any]:
    """Entry for one group; the machine of rank 0 where it is not the driver's own."""
    group = {"first_step": event.first_step, "hosts": list(event.hosts)}
    driver = (attempt.environment or {}).get("hostname", attempt.host)
    if event.machine is None or event.machine.get("hostname") == driver:
        return group
    return group | {"machine": dict(event.machine)}
