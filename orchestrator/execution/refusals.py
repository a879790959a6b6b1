"""Refusals to start a run or to go on with one: its results could not be written, or its driver is still alive."""

import os
import socket
from uuid import uuid4

from orchestrator.errors import InputError
from orchestrator.registry.records import RunRecord
from orchestrator.run_states import RunState
from orchestrator.storage import delete, join, write_bytes


def check_storage(storage: str) -> None:
    """Check that results can be written. Raises: InputError."""
    probe = join(storage, f".probe-{uuid4().hex[:8]}")
    try:
        write_bytes(probe, b"")
        delete(probe)
    except OSError as error:
        raise InputError(f"--storage {storage} cannot be written: {error.strerror or error}; give another") from error


def refuse_if_alive(record: RunRecord) -> None:
    """Refuse a second driver beside one that lives: they would work against each other. Raises: InputError."""
    if record.state != RunState.RUNNING:
        return
    here = record.host == socket.gethostname()
    if here and (record.pid in (None, os.getpid()) or not _is_alive(record.pid)):
        return
    what_to_do = f"end process {record.pid}" if here else "wait until it is shown as LOST, or end it there"
    raise InputError(f"run {record.id} is still running on {record.host}; {what_to_do}, then resume")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
