"""Logs of workers, kept with the run: what a worker process writes to stdout and stderr, and its last traceback.

    RUN/workers/attempt-1-rank-0.txt        one file for each worker of each attempt; Ray's restarts are appended

On a file system the worker's own streams lead into the file, so that the last words of a process that is killed are
there too. An object store cannot append: the file lies on the worker's machine and is uploaded from time to time.
"""

import os
import re
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.storage import exists, join, names_in, read_bytes
from orchestrator.storage.logs import growing_upload
from orchestrator.storage.uris import is_local, local_path

FOLDER = "workers"
_NAME = re.compile(r"attempt-(\d+)-rank-(\d+)\.txt")
_STREAMS = (1, 2)
"""File descriptors of stdout and stderr."""


def worker_logs(run_folder: str) -> list[tuple[int, int, str]]:
    """Attempt, rank and path of each log of a run's workers, in their order."""
    folder = join(run_folder, FOLDER)
    found = [(_NAME.fullmatch(name), name) for name in names_in(folder)]
    return sorted((int(match[1]), int(match[2]), join(folder, name)) for match, name in found if match)


@contextmanager
def kept_output(run_folder: str, attempt: int, rank: int) -> Iterator[None]:
    """Keep with the run what this process writes during the block, and the traceback of an error that leaves it.

    A log that cannot be written ends no run: the process then writes where it wrote before.
    """
    path = join(run_folder, FOLDER, f"attempt-{attempt}-rank-{rank}.txt")
    with ExitStack() as kept:
        with suppress(OSError):
            kept.enter_context(_redirected(path))
            _say(f"rank {rank}, attempt {attempt}, process {os.getpid()} on {socket.gethostname()}")
        try:
            yield
        except BaseException:
            _say(f"ended with an error:\n{traceback.format_exc().rstrip()}")
            raise
        _say("ended")


def _say(text: str) -> None:
    """Write a line into the log, where it can be written: on a full disk the work ends as it would without a log."""
    # Not by `print`, which Ray Train replaces in its workers: lines would come twice.
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")
        sys.stderr.flush()


@contextmanager
def _redirected(path: str) -> Iterator[None]:
    """Lead this process's stdout and stderr into a file of the storage, to its end. Raises: OSError."""
    with ExitStack() as undo:
        if is_local(path):
            target = local_path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
        else:
            target = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="worker-log-"))) / "log.txt"
            if exists(path):
                target.write_bytes(read_bytes(path))
            # What an upload loses to an error the next one has too.
            undo.enter_context(growing_upload(path, target.read_bytes, on_error=lambda error: None))
        file = undo.enter_context(target.open("ab"))
        _flush()
        for number in _STREAMS:
            before = os.dup(number)
            undo.callback(os.close, before)
            undo.callback(os.dup2, before, number)
            os.dup2(file.fileno(), number)
        undo.callback(_flush)
        yield


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a closed stream has nothing to flush
            stream.flush()
