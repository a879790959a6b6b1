"""Files in a run's folder for its next driver: an announcement of the attempt that is starting, a request to stop.

    orchestrator resume ─► RUN/starting.json ─► packages, checks, Ray ─► the attempt is recorded
    orchestrator stop ─► RUN/stop.json ─► the driver's watcher ─► a signal in its main thread ─► all that Ctrl-C does

Until an attempt is recorded the registry has only the attempt before, which has ended: who stops the run, or follows
it, looks here too. A request names the attempt that it is for and never stops a later one.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.cluster.own_errors import OWN_ERRORS
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.storage import delete, exists, join, read_json, write_json
from orchestrator.storage.uris import absolute, is_local

LOG_FILE = "log.txt"
STOP_FILE = "stop.json"
STARTING_FILE = "starting.json"
_MOST_S = 600.0
"""Age from which an announcement of another host counts as left behind by a process that was killed."""


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

    @classmethod
    def withdraw(cls, run_folder: str, attempt: int) -> None:
        """Delete a request that is for an attempt that has yet to begin: an earlier try at it has failed."""
        request = cls.load(run_folder)
        if request is not None and request.attempt == attempt:
            with suppress(FileNotFoundError):
                delete(join(run_folder, STOP_FILE))


@dataclass(frozen=True)
class StartingAttempt:
    """An attempt that a process is about to begin."""

    number: int
    host: str
    pid: int
    announced_at: float = field(default_factory=time.time, compare=False)
    """Seconds since the epoch."""

    @property
    def may_begin(self) -> bool:
        """Whether its process may still be at it: that of another host is believed for some minutes."""
        if self.host == socket.gethostname():
            return is_alive(self.pid)
        return time.time() - self.announced_at < _MOST_S


def starting_attempt(record: RunRecord, folder: str) -> StartingAttempt | None:
    """The attempt that will follow the newest one of a record; None where no process has announced it."""
    path = join(folder, STARTING_FILE)
    try:
        starting = StartingAttempt(**read_json(path)) if exists(path) else None
    except (*OWN_ERRORS, ImportError, OSError, ValueError, TypeError):  # a folder of a store that is not reached here
        return None
    if starting is None or starting.number != record.attempt + 1 or not starting.may_begin:
        return None
    return starting


def is_over(record: RunRecord, settings: Settings) -> bool:
    """Whether a run has ended or its driver is lost, and no process is about to go on with it."""
    if not record.state.is_final and record.state != RunState.LOST:
        return False
    if record.state == RunState.COMPLETED or record.parent_id is not None:
        return True
    return starting_attempt(record, record.folder(settings.storage)) is None


@contextmanager
def announced(run_id: str, settings: Settings) -> Iterator[None]:
    """Announce this process's next attempt at a run until the end of the block, within which it begins.

    A run that cannot go on is not announced: whoever tries is told why. Inner blocks do nothing.
    """
    record = _run_to_announce(run_id, settings)
    folder = None if record is None else absolute(record.folder(settings.storage))
    if record is None or folder is None or (is_local(folder) and not exists(folder)):
        yield
        return
    if starting_attempt(record, folder) is not None:  # by a block around this one, or by another process
        yield
        return
    starting = StartingAttempt(record.attempt + 1, socket.gethostname(), os.getpid())
    with suppress(OSError):  # a folder that cannot be written is refused later on
        StopRequest.withdraw(folder, starting.number)
        write_json(join(folder, STARTING_FILE), asdict(starting))
    try:
        yield
    finally:
        with suppress(OSError):
            delete(join(folder, STARTING_FILE))


def _run_to_announce(run_id: str, settings: Settings) -> RunRecord | None:
    """The run that an id means, a trial's sweep included; None where no attempt at it can begin."""
    # Whatever goes wrong here goes wrong again in the attempt, which tells it.
    with suppress(Exception), Registry(settings.registry, read_only=True) as registry:
        record = registry.run(run_id)
        record = record if record.parent_id is None else registry.run(record.parent_id)
        may_begin = record.state != RunState.COMPLETED and (not record.state.has_driver or has_died_here(record))
        return record if may_begin else None
    return None


def has_died_here(record: RunRecord) -> bool:
    """Whether the driver of a running run was a process of this machine, and has ended."""
    if record.host != socket.gethostname():
        return False
    return record.pid in (None, os.getpid()) or not is_alive(record.pid)


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs; a zombie, whose parent has not asked about its end, does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with suppress(OSError):  # where there is no /proc
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True
