"""Refusals to start a run or to go on with one: its results could not be written, or its driver is still alive."""

import os
import socket
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from orchestrator.cluster.connection import names_no_cluster
from orchestrator.errors import InputError
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.settings import Settings
from orchestrator.storage import delete, exists, join, write_bytes
from orchestrator.storage.folders import nearest_existing
from orchestrator.storage.uris import is_local, local_path


def check_places(settings: Settings) -> None:
    """Check that results, and this machine's own files, can be written; nothing is left there. Raises: InputError."""
    if names_no_cluster(settings) or "registry" not in settings.given:
        _probe(str(settings.home), f"--home {settings.home}", "give another")
    _probe(settings.storage, f"--storage {settings.storage}", "give another")


def refuse_if_alive(record: RunRecord) -> None:
    """Refuse a second driver beside one that lives: they would work against each other. Raises: InputError."""
    if not record.state.has_driver:
        return
    if has_died_here(record):
        return
    raise InputError(
        f"run {record.id} is still {record.state.lower()} on {record.host}, process {record.pid}; "
        f"wait for it, or end it with `orchestrator stop {record.id}`, then resume"
    )


def check_run_folder(record: RunRecord, registry: Registry) -> None:
    """Check that a run to go on with has what it left in its folder, and that it can be written. Raises: InputError.

    A run that ended before it had left anything begins anew, with or without a folder.
    """
    folder = record.storage_path
    if folder is None:
        return
    if is_local(folder) and not exists(folder) and _has_left_something(record, registry):
        raise InputError(
            f"run {record.id} goes on from {folder}, which is not there; mount that storage again, or start a new run"
        )
    _probe(folder, f"{folder}, where run {record.id} lies,", "mount it writable, then resume")


def _has_left_something(record: RunRecord, registry: Registry) -> bool:
    """Whether the registry knows of checkpoints, trials or stages of a run."""
    has_checkpoints, has_stages = bool(registry.checkpoints.of_run(record.id)), bool(registry.stages(record.id))
    return has_checkpoints or has_stages or bool(registry.trials.table(record.id).records)


def has_died_here(record: RunRecord) -> bool:
    """Whether the driver of a running run was a process of this machine, and has ended."""
    if record.host != socket.gethostname():
        return False
    return record.pid in (None, os.getpid()) or not is_alive(record.pid)


def is_alive(pid: int) -> bool:
    """Whether a process of this machine is there; one that has ended and that its parent has not asked about is not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with suppress(OSError):  # where there is no /proc
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def _probe(folder: str, what: str, remedy: str) -> None:
    """Write a file and delete it; of a folder that is not there, in the one above it that is. Raises: InputError."""
    try:
        if is_local(folder):
            folder = str(nearest_existing(local_path(folder).absolute()))
            if not Path(folder).is_dir():
                raise InputError(f"{what} cannot be written: {folder} is no folder; {remedy}")
        probe = join(folder, f".probe-{uuid4().hex[:8]}")
        write_bytes(probe, b"")
        delete(probe)
    except OSError as error:
        raise InputError(f"{what} cannot be written: {error.strerror or error}; {remedy}") from error
