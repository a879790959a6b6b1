"""Lifecycle of runs: create, start an attempt, send heartbeats, finish.

`orchestrator.run_states` says which state may follow which.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, or_, select, update

from orchestrator.errors import InputError, NotFoundError
from orchestrator.provenance.machine import MadeWith
from orchestrator.registry.column_types import replace_unstorable, utc_now
from orchestrator.registry.database import Database
from orchestrator.registry.dialects import change_row, find_row, upsert, upsert_rows
from orchestrator.registry.marks import add_tags
from orchestrator.registry.parameters import encode_parameter, flatten, load_parameters, record_names, run_group_digest
from orchestrator.registry.roll_up import keys_of_runs, open_run, roll_up, roll_up_again, roll_up_tests
from orchestrator.registry.tables import ALL_RUNS, ATTEMPTS, CODE_DIFFS, OPEN_RUNS, PARAMETERS
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
        with self._database.connection(writing=True) as connection:
            keys = keys_of_runs(connection, [run_id])
            connection.execute(delete(ALL_RUNS).where(ALL_RUNS.c.id == run_id, ALL_RUNS.c.state.in_(ended)))
            roll_up_again(connection, keys)
            roll_up_tests(connection)

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
        with self._database.connection(writing=True) as connection:
            _insert_run(connection, row, fingerprint, tags)
        return run_id

    def reopen(self, run_id: str, spec: Mapping[str, Any], fingerprint: str) -> None:
        """Give a run a spec with more work, under its id; a completed one is STOPPED until its next attempt.

        Raises: NotFoundError.
        """
        with self._database.connection(writing=True) as connection:
            run = _locked(connection, run_id)
            open_run(connection, run_id)
            _replace_spec(connection, run, spec, fingerprint)
            if run.state == RunState.COMPLETED:
                changes = {"state": RunState.STOPPED, "error": "it has more to do"}
                change_row(connection, ALL_RUNS, changes, id=run_id)

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
        with self._database.connection(writing=True) as connection:
            run = _locked(connection, run_id)
            if not run.state.may_become(RunState.RUNNING):
                raise InputError(f"Run {run_id} has ended as {run.state}; there is nothing to resume.")
            if number is not None and number <= run.attempt:
                _refuse_others(find_row(connection, ATTEMPTS, run_id=run_id, number=number), host, pid)
                return number
            open_run(connection, run_id)
            number = run.attempt + 1 if number is None else number
            died_at = run.heartbeat_at or utc_now()
            message = "another attempt took over"
            lost = _end_attempts(connection, run_id, RunState.LOST, message, before=number, at=died_at)
            if lost:
                _stop_trials(connection, run_id, message, at=func.coalesce(ALL_RUNS.c.heartbeat_at, died_at))
            place = {"host": host, "pid": pid}
            own = {"run_id": run_id, "number": number, "job_id": job_id, **place}
            connection.execute(insert(ATTEMPTS).values(own | _attempt_columns(connection, made_with)))
            changes = {
                **place,
                "state": RunState.RUNNING,
                "attempt": number,
                "code_version": made_with.code.code_version if made_with else None,
                "seconds": run.seconds if not lost else (run.seconds or 0.0) + sum(lost),
                "error": None,
                "started_at": run.started_at or utc_now(),
                "finished_at": None,
                "heartbeat_at": utc_now(),
            }
            change_row(connection, ALL_RUNS, changes, id=run_id)
        return number

    def record_workers(self, run_id: str, number: int, events: Iterable[WorkersEvent]) -> None:
        """Record groups of training workers of an attempt. A group that begins earlier than one before replaces it."""
        with self._database.connection(writing=True) as connection:
            attempt = find_row(connection, ATTEMPTS, run_id=run_id, number=number)
            if attempt is None:
                raise NotFoundError(f"Run {run_id} has no attempt {number}.")
            change_row(connection, ATTEMPTS, {"workers": _with_groups(attempt, events)}, run_id=run_id, number=number)

    def heartbeat(self, run_id: str, attempt: int | None = None) -> bool:
        """Record that the driver of a run, and so the run's running trials, are alive.

        Returns False, and records nothing, where a newer attempt has superseded `attempt`.
        """
        owned_by_attempt = ALL_RUNS.c.id == run_id
        if attempt is not None:
            owned_by_attempt &= ALL_RUNS.c.attempt == attempt
        running = ALL_RUNS.c.state == RunState.RUNNING
        with self._database.connection(writing=True) as connection:
            beat = update(ALL_RUNS).values(heartbeat_at=utc_now())
            is_owned = connection.scalar(select(ALL_RUNS.c.id).where(owned_by_attempt)) is not None
            if is_owned:
                connection.execute(beat.where(or_(ALL_RUNS.c.id == run_id, ALL_RUNS.c.parent_id == run_id), running))
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
        with self._database.connection(writing=True) as connection:
            run = _locked(connection, run_id)
            if attempt is not None and attempt < run.attempt:
                _end_attempts(connection, run_id, state, error, before=attempt + 1, after=attempt - 1)
                return False
            if not run.state.may_become(state):
                return bool(run.state == state)
            ended = _end_attempts(connection, run_id, state, error, before=run.attempt + 1)
            spent = seconds if ended and seconds is not None else sum(ended)
            changes = {
                "state": state,
                "error": error,
                "seconds": (run.seconds or 0.0) + spent,
                "model_folder": model_folder,
                "predictions_path": predictions_path,
                "finished_at": utc_now(),
            }
            change_row(connection, ALL_RUNS, changes, id=run_id)
            _stop_trials(connection, run_id, "its sweep ended", at=utc_now())
            roll_up(connection)
        return True


def _locked(connection: Connection, run_id: str) -> Row[Any]:
    run = find_row(connection, ALL_RUNS, id=run_id, for_update=True)
    if run is None or run.removed_at is not None:
        raise NotFoundError(f"No run {run_id} in the registry.")
    return run


def _stop_trials(connection: Connection, run_id: str, error: str, *, at: Any) -> None:
    """Stop the open trials of a run, at a time."""
    connection.execute(
        update(ALL_RUNS)
        .where(ALL_RUNS.c.parent_id == run_id, ALL_RUNS.c.state.in_((RunState.PENDING, RunState.RUNNING)))
        .values(state=RunState.STOPPED, error=error, finished_at=at)
    )


def _refuse_others(attempt: Row[Any] | None, host: str | None, pid: int | None) -> None:
    """Refuse an attempt that another process has started. Raises: InputError."""
    mine = (None if host is None else replace_unstorable(host), pid)
    if attempt is not None and (attempt.host, attempt.pid) != mine:
        raise InputError(
            f"Run {attempt.run_id} was resumed by process {attempt.pid} on {attempt.host} just now; leave it to that "
            "one, or end it, then resume."
        )


def _end_attempts(
    connection: Connection,
    run_id: str,
    state: RunState,
    error: str | None,
    *,
    before: int,
    after: int = 0,
    at: Any = None,
) -> list[float]:
    """End the open attempts whose numbers lie between `after` and `before`, both excluded.

    Returns their durations in seconds, by the database's clock.

    Args:
        at: when they ended; now when left out.
    """
    times = connection.execute(
        update(ATTEMPTS)
        .where(ATTEMPTS.c.run_id == run_id, ATTEMPTS.c.number < before, ATTEMPTS.c.number > after)
        .where(ATTEMPTS.c.state == RunState.RUNNING)
        .values(state=state, error=error, finished_at=utc_now() if at is None else at)
        .returning(ATTEMPTS.c.started_at, ATTEMPTS.c.finished_at)
    ).all()
    return [
        max(0.0, (finished_at - started_at).total_seconds())
        for started_at, finished_at in times
        if finished_at is not None
    ]


def _insert_run(connection: Connection, row: Mapping[str, Any], fingerprint: str, tags: Sequence[str]) -> None:
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
    statement = upsert(connection.dialect.name, ALL_RUNS, ("id",)).returning(ALL_RUNS.c.id)
    if connection.execute(statement, given).first() is None:
        known = find_row(connection, ALL_RUNS, id=row["id"])
        if known is not None and known.removed_at is not None:
            raise InputError(f"run {row['id']} was removed; to bring it back: orchestrator runs restore {row['id']}")
        return
    if parameters:
        record_names(connection, parameters)
        rows = [{"run_id": row["id"], "path": path, **_encoded(value)} for path, value in parameters.items()]
        connection.execute(insert(PARAMETERS), rows)
    connection.execute(insert(OPEN_RUNS), [{"run_id": row["id"]}])
    add_tags(connection, row["id"], tags)


def _replace_spec(connection: Connection, run: Row[Any], spec: Mapping[str, Any], fingerprint: str) -> None:
    """Replace the spec of a run by one with the same fields."""
    parameters = load_parameters(connection, run.id)
    for path, value in _parameters_of(spec).items():
        if path in parameters and parameters[path] != value:
            parameters[path] = value
            row = update(PARAMETERS).where(PARAMETERS.c.run_id == run.id, PARAMETERS.c.path == path)
            connection.execute(row.values(**_encoded(value)))
    group = run_group_digest(run.kind, parameters)
    changes = {"spec": dict(spec), "fingerprint": fingerprint, "group_key": group}
    change_row(connection, ALL_RUNS, changes, id=run.id)


def _parameters_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    flat = flatten({key: value for key, value in spec.items() if key not in _COLUMNS_OF_THEIR_OWN})
    return {replace_unstorable(path): value for path, value in flat.items()}


def _encoded(value: Any) -> dict[str, Any]:
    return dict(zip(("kind", "text", "number"), encode_parameter(value), strict=True))


def _attempt_columns(connection: Connection, made_with: MadeWith | None) -> dict[str, Any]:
    """Columns of an attempt's row; the changes of its code are written to a row of their own."""
    if made_with is None:
        return {}
    code = asdict(made_with.code)
    diff, digest = code.pop("diff"), code["diff_digest"]
    if diff is not None:
        upsert_rows(connection, CODE_DIFFS, ("digest",), (), [{"digest": digest, "diff": diff}])
    return {
        "code": code,
        "diff_digest": digest if diff is not None else None,
        "command": made_with.command,
        "overrides": list(made_with.overrides),
        "environment": dict(made_with.environment),
    }


def _with_groups(attempt: Row[Any], events: Iterable[WorkersEvent]) -> list[dict[str, Any]]:
    """The attempt's groups with those that have begun since; one that begins earlier than others replaces these."""
    groups: list[dict[str, Any]] = attempt.workers or []
    for event in events:
        groups = [group for group in groups if group["first_step"] < event.first_step]
        if not groups or groups[-1]["hosts"] != list(event.hosts):
            groups.append(_group(event, attempt))
    return groups


def _group(event: WorkersEvent, attempt: Row[Any]) -> dict[str, Any]:
    """Entry for one group; the machine of rank 0 where it is not the driver's own."""
    group = {"first_step": event.first_step, "hosts": list(event.hosts)}
    driver = (attempt.environment or {}).get("hostname", attempt.host)
    if event.machine is None or event.machine.get("hostname") == driver:
        return group
    return group | {"machine": dict(event.machine)}
