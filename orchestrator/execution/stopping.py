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
from orchestrator.execution.attempt_files import StopRequest, has_died_here
from orchestrator.execution.waiting import poll, progress_line
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

    A run whose driver is gone is recorded as STOPPED here; one that has ended is left alone.

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
        if record.state.is_final:
            later = "" if record.state == RunState.COMPLETED else "; stop a resume that is starting once it has begun"
            say(f"run {record.id} has ended already, as {record.state}{later}")
            return record
        folder, request = record.folder(settings.storage), StopRequest(record.attempt, force)
        if not record.state.has_driver or has_died_here(record):
            with suppress(OSError):  # a driver that was only silent finds the request when it comes back
                request.save(folder)
            return _record_stopped(registry, record, say)
        if is_local(folder) and not exists(folder):
            raise InputError(
                f"run {record.id} lies in {folder}, which is not there; call `orchestrator stop` where it is, "
                f"or end process {record.pid} on {record.host}"
            )
        request.save(folder)
        say(f"asked run {record.id} to stop: process {record.pid} on {record.host}")
        return record if timeout_s is None else _wait_for_end(registry, record, timeout_s, say)


def _wait_for_end(registry: Registry, asked: RunRecord, timeout_s: float, say: Callable[[str], None]) -> RunRecord:
    """Wait until a run that was asked to stop has ended, and its process as well where that is one of this machine."""
    for _ in poll(timeout_s, _POLL_S):
        has_died = has_died_here(asked)  # before the run is read: its process may write its state as its last deed
        record = patient(registry).run(asked.id)
        if record.state.is_final and (has_died or asked.host != socket.gethostname()):
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
    """Words on the place from which an interrupted run will go on: the `step` that it has saved, else how far it is."""
    step: int | None = getattr(interruption, "step", None)
    if step is not None:
        return f"stopped after step {step:,}"
    with suppress(*OWN_ERRORS), Registry(settings.registry) as registry:
        return f"stopped at: {progress_line(registry, registry.run(run_id))}; a resume goes on from what is saved"
    return "stopped"
