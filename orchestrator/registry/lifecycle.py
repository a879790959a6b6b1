"""Lifecycle of runs; `orchestrator.base.run_states` says which state may follow which."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, or_, select, update

from orchestrator.base.errors import InputError, NotFoundError
from orchestrator.base.results import WorkersEvent
from orchestrator.base.run_states import RunState, new_run_id
from orchestrator.provenance.capture import Provenance
from orchestrator.registry.connections import WriteTransaction
from orchestrator.registry.database import RegistryPart
from orchestrator.registry.dialects import change_row, find_row, replace_unstorable, upsert, upsert_rows, utc_now
from orchestrator.registry.lineage import write_edges_of
from orchestrator.registry.marks import add_marks
from orchestrator.registry.parameters import RECIPE, flatten, load_parameters, run_group_digest, write_parameters
from orchestrator.registry.roll_up import keys_of_runs, open_run, roll_up, roll_up_again, roll_up_tests
from orchestrator.registry.tables import ALL_MODELS, ALL_RUNS, ATTEMPTS, CODE_DIFFS, OPEN_RUNS, RUNS


class RunLifecycle(RegistryPart):
    """`registry.lifecycle`: creates runs and moves them from state to state."""

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

        Raises: InputError for a run that was removed.
        """
        parameters, run_id = _parameters_of(spec), run_id or new_run_id()
        row: dict[str, Any] = {"id": run_id, "kind": kind, "name": name, "task": task, "metric": metric, "seed": seed}
        row |= {"spec": dict(spec), "fingerprint": fingerprint, "storage_path": storage_path}
        with self._database.connection(writing=True) as connection:
            row["group_key"] = run_group_digest(kind, parameters)
            statement = upsert(connection.dialect.name, ALL_RUNS, ("id",)).returning(ALL_RUNS.c.key)
            key = connection.scalar(statement, row)
            if key is not None:
                write_parameters(WriteTransaction.within(connection), {key: parameters})
                connection.execute(insert(OPEN_RUNS), {"run_id": run_id})
                add_marks(connection, run_id, "tag", tags)
            elif find_row(connection, RUNS, id=run_id) is None:
                raise InputError(f"run {run_id} was removed; to bring it back: orchestrator runs restore {run_id}")
        return run_id

    def replace_spec(self, run_id: str, spec: Mapping[str, Any], fingerprint: str, *, after: int | None = None) -> None:
        """Put a spec with the same fields into a run's record; a completed run is STOPPED until its next attempt.

        Raises: NotFoundError; InputError where a newer attempt than `after` has begun, whose spec stays.
        """
        with self._database.connection(writing=True) as connection:
            run = _locked(connection, run_id)
            if after is not None and run.attempt != after:
                raise InputError(f"Run {run_id} was resumed by another process just now; leave it to that one.")
            open_run(connection, run_id)
            old = load_parameters(connection, run_id)
            new = {path: value for path, value in _parameters_of(spec).items() if old.get(path, value) != value}
            write_parameters(WriteTransaction.within(connection), {run.key: new})
            changes = {"spec": dict(spec), "fingerprint": fingerprint}
            changes["group_key"] = run_group_digest(run.kind, old | new)
            if run.state == RunState.COMPLETED:
                changes |= {"state": RunState.STOPPED, "error": "it has more to do"}
            change_row(connection, ALL_RUNS, changes, id=run_id)

    def start_attempt(
        self,
        run_id: str,
        *,
        number: int | None = None,
        host: str | None = None,
        pid: int | None = None,
        job_id: str | None = None,
        made_with: Provenance | None = None,
    ) -> int:
        """Start an attempt of a run and return its number; older attempts are fenced off from then on.

        An attempt that never ended is lost: the trials that it had begun stopped when they were last known to run. A
        `number` that was announced before may be started twice by the same process, which changes nothing.

        Raises: InputError for a run that cannot run again, or whose attempt of this number is another process's;
            NotFoundError.
        """
        with self._database.connection(writing=True) as connection:
            run = _locked(connection, run_id)
            if not run.state.may_become(RunState.RUNNING):
                raise InputError(f"Run {run_id} has ended as {run.state}; there is nothing to resume.")
            number = run.attempt + 1 if number is None else number
            if number <= run.attempt:
                known = find_row(connection, ATTEMPTS, run_id=run_id, number=number)
                if known is not None and (known.host, known.pid) != (host and replace_unstorable(host), pid):
                    other = f"process {known.pid} on {known.host}"
                    raise InputError(f"Run {run_id} was resumed by {other} just now; leave it to that one, or end it.")
                return number
            open_run(connection, run_id)
            died_at, message = run.heartbeat_at or utc_now(), "another attempt took over"
            lost = _end_attempts(connection, run_id, RunState.LOST, message, at=died_at)
            if lost:
                _stop_trials(connection, run_id, message, at=func.coalesce(ALL_RUNS.c.heartbeat_at, died_at))
            place = {"host": host, "pid": pid}
            attempt: dict[str, Any] = {"run_id": run_id, "number": number, "job_id": job_id, **place}
            if made_with is not None:
                attempt |= asdict(made_with)
                diff = attempt["code"].pop("diff")
                if diff is not None:
                    attempt["diff_digest"] = digest = attempt["code"]["diff_digest"]
                    upsert_rows(connection, CODE_DIFFS, [{"digest": digest, "diff": diff}])
            connection.execute(insert(ATTEMPTS).values(attempt))
            changes = {**place, "state": RunState.RUNNING, "attempt": number, "error": None, "finished_at": None}
            changes |= {"started_at": run.started_at or utc_now(), "heartbeat_at": utc_now()}
            changes["code_version"] = made_with.code.code_version if made_with else None
            changes["seconds"] = sum(lost, run.seconds or 0.0) if lost else run.seconds
            change_row(connection, ALL_RUNS, changes, id=run_id)
        return number

    def record_workers(self, run_id: str, number: int, events: Iterable[WorkersEvent]) -> None:
        """Record groups of training workers of an attempt. A group that begins earlier than others replaces these.

        A group has the machine of its rank 0 where that is not the driver's own. Raises: NotFoundError.
        """
        with self._database.connection(writing=True) as connection:
            attempt = find_row(connection, ATTEMPTS, run_id=run_id, number=number)
            if attempt is None:
                raise NotFoundError(f"Run {run_id} has no attempt {number}.")
            driver = (attempt.environment or {}).get("hostname", attempt.host)
            groups: list[dict[str, Any]] = attempt.workers or []
            for event in events:
                groups = [group for group in groups if group["first_step"] < event.first_step]
                if not groups or groups[-1]["hosts"] != list(event.hosts):
                    is_elsewhere = event.machine is not None and event.machine.get("hostname") != driver
                    machine = {"machine": dict(event.machine or {})} if is_elsewhere else {}
                    groups.append({"first_step": event.first_step, "hosts": list(event.hosts), **machine})
            change_row(connection, ATTEMPTS, {"workers": groups}, run_id=run_id, number=number)

    def heartbeat(self, run_id: str, attempt: int | None = None) -> bool:
        """Record that the driver of a run, and so the run's running trials, are alive.

        Returns False, and records nothing, where a newer attempt has superseded `attempt`.
        """
        with self._database.connection(writing=True) as connection:
            newest = connection.scalar(select(ALL_RUNS.c.attempt).where(ALL_RUNS.c.id == run_id))
            is_owned = newest is not None and attempt in (None, newest)
            if is_owned:
                theirs = or_(ALL_RUNS.c.id == run_id, ALL_RUNS.c.parent_id == run_id)
                beat = update(ALL_RUNS).where(theirs, ALL_RUNS.c.state == RunState.RUNNING)
                connection.execute(beat.values(heartbeat_at=utc_now()))
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

        One that completes gets its edges in the lineage.

        Args:
            attempt: number of the attempt that ends; the newest when left out. An older one ends itself alone.
            seconds: duration of that attempt by a clock that never jumps; by the database's clock when left out.

        Raises: NotFoundError.
        """
        assert state in (RunState.COMPLETED, RunState.FAILED, RunState.STOPPED), state
        with self._database.connection(writing=True) as connection:
            run = _locked(connection, run_id)
            if attempt is not None and attempt < run.attempt:
                _end_attempts(connection, run_id, state, error, number=attempt)
                return False
            if not run.state.may_become(state):
                return bool(run.state == state)
            if run.state.is_final:  # recorded as ended by another process, and rolled up as it was then
                open_run(connection, run_id)
            at = None
            if seconds is None and run.heartbeat_at is not None:
                silent_s = (connection.scalar(select(utc_now())) - run.heartbeat_at).total_seconds()
                at = run.heartbeat_at if silent_s > self._database.lost_after_s else None
            ended = _end_attempts(connection, run_id, state, error, at=at)
            spent = (run.seconds or 0.0) + (seconds if ended and seconds is not None else sum(ended))
            changes = {"state": state, "error": error, "seconds": spent, "finished_at": utc_now()}
            changes |= {"model_folder": model_folder, "predictions_path": predictions_path}
            change_row(connection, ALL_RUNS, changes, id=run_id)
            _stop_trials(connection, run_id, "its sweep ended", at=utc_now())
            if state == RunState.COMPLETED and run.parent_id is None:
                write_edges_of(connection, run)
            if find_row(connection, ALL_MODELS, run_id=run_id) is not None:  # which may have been tested meanwhile
                roll_up_tests(connection)
            roll_up(connection)
        return True


def _locked(connection: Connection, run_id: str) -> Row[Any]:
    run = find_row(connection, ALL_RUNS, id=run_id, for_update=True)
    if run is None or run.removed_at is not None:
        raise NotFoundError(f"No run {run_id} in the registry.")
    return run


def _stop_trials(connection: Connection, run_id: str, error: str, *, at: Any) -> None:
    """Stop the open trials of a run, at a time."""
    are_open = ALL_RUNS.c.parent_id == run_id, ALL_RUNS.c.state.in_((RunState.PENDING, RunState.RUNNING))
    connection.execute(update(ALL_RUNS).where(*are_open).values(state=RunState.STOPPED, error=error, finished_at=at))


def _end_attempts(
    connection: Connection,
    run_id: str,
    state: RunState,
    error: str | None,
    *,
    number: int | None = None,
    at: Any = None,
) -> list[float]:
    """End the open attempts of a run, or one alone, now or at a time; return their seconds by the database's clock."""
    ended = update(ATTEMPTS).where(ATTEMPTS.c.run_id == run_id, ATTEMPTS.c.state == RunState.RUNNING)
    if number is not None:
        ended = ended.where(ATTEMPTS.c.number == number)
    ended = ended.values(state=state, error=error, finished_at=utc_now() if at is None else at)
    times = connection.execute(ended.returning(ATTEMPTS.c.started_at, ATTEMPTS.c.finished_at))
    return [max(0.0, (finished_at - started_at).total_seconds()) for started_at, finished_at in times]


def _parameters_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a run by its spec, without the fields that are columns of the run, or that `space` overrides."""
    flat = flatten({key: value for key, value in spec.items() if key not in ("kind", "name", "tags")})
    unused = {f"{RECIPE}{name}" for name in spec.get("space") or ()}
    return {replace_unstorable(path): value for path, value in flat.items() if path not in unused}
