"""Stop requests to a run of another shell or machine: the run ends as it does by Ctrl-C.

The request is a file because the storage is what every machine of a run reaches, that of a submitted job included.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress

from orchestrator.base.errors import InputError, RunFailedError, StopRequested
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.cluster.own_errors import OWN_ERRORS
from orchestrator.execution.attempt_files import StopRequest, has_died_here, is_alive, starting_attempt
from orchestrator.execution.waiting import poll
from orchestrator.registry.database import patient
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.storage import exists
from orchestrator.storage.uris import is_local

_POLL_S = 0.5


def stop_run(
    run_id: str,
    *,
    settings: Settings,
    force: bool = False,
    timeout_s: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> RunRecord:
    """Ask a run to stop, on whatever machine it works, and wait until it has ended.

    A run whose driver is gone is recorded as STOPPED here. A run that has ended is left alone, unless a `resume` is
    starting: its attempt is stopped as soon as it begins.

    Args:
        force: whether it leaves at once, without saving anything.
        timeout_s: longest wait in seconds; None leaves as soon as the request is written.
        say: told what happens.

    Raises: InputError for a trial, or where the run's folder is not reached from here; NotFoundError; RunFailedError
        when the run has not ended in time.
    """
    with Registry(settings.registry, read_only=True) as registry:
        run_id = registry.run(run_id).id  # a look that makes no registry where there is none
    with Registry(settings.registry) as registry:
        record = registry.run(run_id)
        if record.parent_id is not None:
            raise InputError(f"{record.id} is a trial of sweep {record.parent_id}; a sweep is stopped as a whole")
        folder = record.folder(settings.storage)
        if (starting := starting_attempt(record, folder)) is not None:
            StopRequest(starting.number, force).save(folder)
            say(f"asked run {record.id} to stop: process {starting.pid} on {starting.host} is about to go on with it")
            return record if timeout_s is None else _wait_for_end(registry, record, folder, timeout_s, say)
        if record.state.is_final:
            return _ended_already(record, say)
        is_gone = not record.state.has_driver or has_died_here(record)
        if not is_gone and is_local(folder) and not exists(folder):
            raise InputError(
                f"run {record.id} lies in {folder}, which is not there; call `orchestrator stop` where it is, "
                f"or end process {record.pid} on {record.host}"
            )
        if is_gone:
            with suppress(OSError):  # a driver that was only silent finds the request when it comes back
                StopRequest(record.attempt, force).save(folder)
            return _record_stopped(registry, record, say)
        StopRequest(record.attempt, force).save(folder)
        say(f"asked run {record.id} to stop: process {record.pid} on {record.host}")
        return record if timeout_s is None else _wait_for_end(registry, record, None, timeout_s, say)


def _ended_already(record: RunRecord, say: Callable[[str], None]) -> RunRecord:
    say(f"run {record.id} has ended already, as {record.state}")
    return record


def _wait_for_end(
    registry: Registry, asked: RunRecord, folder: str | None, timeout_s: float, say: Callable[[str], None]
) -> RunRecord:
    """Wait until a run that was asked to stop has ended, and its process as well where that is one of this machine.

    Args:
        folder: of the run, whose next attempt is starting: that has to begin first, or its process to give up; None
            where the attempt is recorded.
    """
    for _ in poll(timeout_s, _POLL_S):
        # Before the run is read: its process may begin the attempt, or write its state as its last deed.
        is_starting = folder is not None and starting_attempt(asked, folder) is not None
        has_died = has_died_here(asked)
        record = patient(registry).run(asked.id)
        if folder is not None:
            if record.attempt > asked.attempt:
                asked, folder = record, None
            elif not is_starting:
                return _ended_already(record, say) if record.state.is_final else _record_stopped(registry, record, say)
            continue
        is_here = asked.host == socket.gethostname() and asked.pid is not None
        if record.state.is_final and not (is_here and is_alive(asked.pid or 0)):
            say(f"run {record.id} has ended, as {record.state}")
            return record
        if not record.state.is_final and (has_died or record.state == RunState.LOST):
            return _record_stopped(registry, record, say)
    raise RunFailedError(
        f"run {asked.id} has not ended within {timeout_s:g} s; "
        f"wait longer, or let it leave without saving: orchestrator stop {asked.id} --force"
    )


def _record_stopped(registry: Registry, record: RunRecord, say: Callable[[str], None]) -> RunRecord:
    message = f"{StopRequested(record.id)}, after its process had ended"
    registry.lifecycle.finish(record.id, RunState.STOPPED, error=message, attempt=record.attempt)
    record = registry.run(record.id)
    say(f"the process of run {record.id} is gone already; it is recorded as {record.state}")
    return record


def record_abandoned(run_id: str, settings: Settings) -> None:
    """Record a run that this process leaves without saving as STOPPED, and so the stage of a pipeline at work."""
    own = (socket.gethostname(), os.getpid())
    with suppress(*OWN_ERRORS), Registry(settings.registry) as registry:
        for record in (*registry.stages(run_id), registry.run(run_id)):
            if record.state.has_driver and (record.host, record.pid) == own:
                message = "interrupted twice, and left without saving"
                registry.lifecycle.finish(record.id, RunState.STOPPED, error=message, attempt=record.attempt)


def where_it_stopped(run_id: str, interruption: BaseException, settings: Settings) -> str:
    """Words on the place from which an interrupted run will go on, as far as that is known.

    An interruption that made a run save says at which `step`; else the run's newest checkpoint tells.
    """
    from orchestrator.training.checkpoints import Checkpoints  # torch, which a run has loaded and `stop` does not need

    step: int | None = getattr(interruption, "step", None)
    if step is not None:
        return f"stopped after step {step:,}"
    with suppress(*OWN_ERRORS, OSError), Registry(settings.registry) as registry:
        record = registry.run(run_id)
        if record.state == RunState.COMPLETED:
            return "interrupted after it had completed"
        record = next(iter(registry.stages(run_id)), record)
        if record.kind in ("sweep", "probe"):
            states = registry.trials.states(record.id).values()
            num_ended = sum(state in (RunState.COMPLETED, RunState.PRUNED) for state in states)
            stand = "1 trial is finished and kept" if num_ended == 1 else f"{num_ended} trials are finished and kept"
            return f"stopped in sweep {record.name}; {stand}"
        checkpoints = Checkpoints(record.folder(settings.storage)).newest_first()
        if checkpoints:
            return f"stopped; its newest checkpoint is of step {checkpoints[0].step:,}"
        if record.spec.get("steps") or record.spec.get("pretraining"):
            return "stopped before its first checkpoint, so it will begin anew"
    return "stopped"
