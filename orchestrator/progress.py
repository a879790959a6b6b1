"""What a person sees while work goes on: lines that stay, and on a terminal one line that is written over.

Elsewhere (a file, a pipe, a job's log) the changing line becomes a plain one every few seconds.
"""

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

PLAIN_INTERVAL_S = 10.0


class Progress:
    """Writes to stderr; every line that stays also goes to `keep`, the run's log."""

    def __init__(self, stream: TextIO | None = None, keep: Callable[[str], None] = lambda line: None) -> None:
        self._stream = stream or sys.stderr
        self._keep = keep
        self._is_terminal = self._stream.isatty()
        self._has_status = False
        self._plain_at = 0.0

    def say(self, line: str) -> None:
        """A line that stays."""
        self._keep(line)
        self._erase()
        self._stream.write(line + "\n")
        self._stream.flush()

    def show(self, line: str) -> None:
        """How things stand: takes the place of the last such line."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns
            self._stream.write("\r" + line[: width - 1].ljust(width - 1))
            self._stream.flush()
            self._has_status = True
        elif time.monotonic() - self._plain_at > PLAIN_INTERVAL_S:
            self._plain_at = time.monotonic()
            self.say(line)

    def close(self) -> None:
        """Leave a clean line behind."""
        self._erase()

    def _erase(self) -> None:
        if self._has_status:
            self._stream.write("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r")
            self._has_status = False


def duration(seconds: float) -> str:
    """A length of time as people say it.

    >>> duration(59.4), duration(61), duration(3 * 3600 + 60)
    ('59 s', '1:01 min', '3:01 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
