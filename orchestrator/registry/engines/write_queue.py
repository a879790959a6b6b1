"""Queue of SQLite's writers: who asks for the file's write lock gets it within a few transactions of the others.

SQLite gives its write lock to whoever asks at the right moment, and lets those who wait sleep longer and longer, so
that a process that writes again and again starves the others (seen: 15 s). Here a writer first takes a place at the
head of a queue, a lock on the file's folder, and only the head asks SQLite, at short intervals. Whoever has just
written finds the head taken, and waits as the others do, a short time that is drawn anew each time.

The operating system frees the place of a process that dies. Where a folder cannot be locked, all ask SQLite at once.
"""

import contextlib
import fcntl
import logging
import os
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from orchestrator.registry.engines.sqlite_files import BUSY_TIMEOUT_S

SAY_AFTER_S = 3.0
"""Time after which a person is told that another process holds the file, and that this one waits."""
_HEAD_PAUSE_S = 0.0002
"""Pause of the head of the queue between two tries, shorter than most transactions."""
_PAUSES_S = (0.0005, 0.003)
"""Shortest and longest pause of the others: all together they wake some times in each transaction."""
_TRIES_ANYWAY_S = 1.0
"""Interval at which any writer tries: the head may wait for another file of the folder, or be suspended."""
logger = logging.getLogger(__name__)


class WriteQueue:
    """A writer's place in the queue for one file; each connection has its own.

    Args:
        path: the SQLite file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._was_told = False
        self._folder: int | None = None
        with contextlib.suppress(OSError):
            self._folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)

    def begin(self, execute: Callable[[str], object]) -> None:
        """Begin a writing transaction by `execute`, which runs SQL on a connection that does not wait by itself.

        Raises: sqlite3.OperationalError where the lock is not to be had for BUSY_TIMEOUT_S.
        """
        deadline, has_head = time.monotonic() + BUSY_TIMEOUT_S, False
        next_try = time.monotonic() + _TRIES_ANYWAY_S
        try:
            while True:
                has_head = has_head or self._take_head()
                if has_head or time.monotonic() > min(next_try, deadline):
                    next_try = time.monotonic() + _TRIES_ANYWAY_S
                    try:
                        execute("BEGIN IMMEDIATE")
                    except sqlite3.OperationalError as error:
                        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                            raise
                    else:
                        self._was_told = False
                        return
                self._tell(deadline)
                time.sleep(_HEAD_PAUSE_S if has_head and self._folder is not None else random.uniform(*_PAUSES_S))
        finally:
            if has_head and self._folder is not None:
                fcntl.flock(self._folder, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the place up."""
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def _take_head(self) -> bool:
        """Whether this writer is at the head now."""
        if self._folder is None:
            return True
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without such locks
            self.close()
        return True

    def _tell(self, deadline: float) -> None:
        """Say once, to whoever tries for an hour too, that this process waits."""
        left_s = deadline - time.monotonic()
        if not self._was_told and left_s < BUSY_TIMEOUT_S - SAY_AFTER_S:
            self._was_told = True
            logger.warning(
                f"waiting: another process holds the registry {self._path}; it is waited for {left_s:.0f} s more"
            )
