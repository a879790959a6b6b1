"""File in a run's folder by which it is asked to stop, and whether its driver is alive.

    orchestrator stop ─► RUN/stop.json ─► the driver's watcher ─► a signal in its main thread ─► all that Ctrl-C does

A request names the attempt that it is for and never stops a later one.
"""

import os
import socket
from dataclasses import asdict, dataclass

import psutil

from orchestrator.registry.records import RunRecord
from orchestrator.storage import exists, join, read_json, write_json

LOG_FILE = "log.txt"
STOP_FILE = "stop.json"


@dataclass(frozen=True)
class StopRequest:
    """Somebody's wish that an attempt ends."""

    attempt: int
    force: bool = False
    """Whether it leaves at once, without saving anything."""

    def save(self, run_folder: str) -> None:
        """Write the request into the folder of the run, in place of an earlier one."""
        write_json(join(run_folder, STOP_FILE), asdict(self))

    @classmethod
    def load(cls, run_folder: str) -> "StopRequest | None":
        """The request in a run's folder; None where there is none that can be read."""
        path = join(run_folder, STOP_FILE)
        try:
            return cls(**read_json(path)) if exists(path) else None
        except (OSError, ValueError, TypeError):
            return None


def has_died_here(record: RunRecord) -> bool:
    """Whether the driver of a running run was a process of this machine, and has ended."""
    if record.host != socket.gethostname():
        return False
    return record.pid in (None, os.getpid()) or not is_alive(record.pid)


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs; a zombie, whose parent has not asked about its end, does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
