"""Progress of long work, on stderr: lines that stay, and on a terminal one status line that is written over.

    logger.info(…)        a line that stays, from any module; a run's log gets it too (`execution/run_log.py`)
    logger.warning(…)     the same, with "warning: " before it
    progress.status(…)    the status line; where stderr is no terminal, a line that stays every few seconds

Whoever reads stderr may leave (`2>&1 | head`, a closed terminal): what is said later goes to the run's log alone.

Each module has a logger of its own, `logging.getLogger(__name__)`. Handlers are attached to the project's loggers only
and only for the length of a block: who uses the packages as a library decides what becomes of their records.
"""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing import TypeGuard

    from rich.live import Live

PLAIN_INTERVAL_S = 10.0
OWN_LOGGERS = tuple(logging.getLogger(package) for package in ("orchestrator", "bert_core"))
logger = logging.getLogger(__name__)


def is_terminal(stream: TextIO | None) -> "TypeGuard[TextIO]":
    """Whether a stream of this process is a terminal; the shell may have closed it, which leaves None."""
    return stream is not None and stream.isatty()


class LineFormatter(logging.Formatter):
    """The message of a record; what is more than information has its level in front."""

    def format(self, record: logging.LogRecord) -> str:
        """The line without its line feed."""
        line = super().format(record)
        return f"{record.levelname.lower()}: {line}" if record.levelno > logging.INFO else line


class Progress(logging.Handler):
    """Handler that writes records to stderr as plain lines, above a status line.

    `show_progress` makes the one of a process and shares it.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        self.setFormatter(LineFormatter())
        self._stream: TextIO | None = stream or sys.stderr  # None where the shell closed it (`2>&-`)
        shows = is_terminal(self._stream)
        self._can_overwrite = shows and os.environ.get("TERM") != "dumb"
        self._live: Live | None = None
        self._plain_at = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line; the status line moves below it."""
        line = self.format(record)
        with self._reader_may_leave():
            if self._live is not None:
                self._live.console.out(line, highlight=False)
            elif self._stream is not None:
                self._stream.write(line + "\n")
                self._stream.flush()

    def status(self, line: str) -> None:
        """Replace the status line."""
        if self._can_overwrite:
            with self._reader_may_leave():
                self._overwrite(line)
        elif time.monotonic() - self._plain_at > PLAIN_INTERVAL_S:
            self._plain_at = time.monotonic()
            logger.info(line)

    def _overwrite(self, line: str) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            console = Console(file=self._stream, force_terminal=True)
            self._live = Live(
                console=console,
                transient=True,
                auto_refresh=False,
                redirect_stdout=False,  # rich would send it to this console's stream; stdout is data
                redirect_stderr=False,
            )
            self._live.start()
            console.show_cursor(True)  # a process that is killed must not leave the terminal without one
        self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def clear(self) -> None:
        """Remove the status line."""
        if self._live is not None:
            with self._reader_may_leave():
                self._live.stop()
            self._live = None

    def close(self) -> None:
        """Remove the status line for good."""
        self.clear()
        super().close()

    @contextmanager
    def _reader_may_leave(self) -> Iterator[None]:
        """Go on where the stream cannot be written any more: from then on status lines are log lines."""
        try:
            yield
        except OSError:
            assert self._stream is not None
            send_nowhere(self._stream)
            self._live, self._stream, self._can_overwrite = None, None, False


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Show the project's log lines on stderr during the block; inner blocks share the outer one's terminal."""
    outer = next((handler for handler in OWN_LOGGERS[0].handlers if isinstance(handler, Progress)), None)
    if outer is None:
        with closing(Progress()) as progress, attached(progress):
            yield progress
        return
    try:
        yield outer
    finally:
        outer.clear()


@contextmanager
def attached(handler: logging.Handler) -> Iterator[None]:
    """Give a handler the records of the project's own loggers during the block, information included."""
    without_level = [own for own in OWN_LOGGERS if own.level == logging.NOTSET]
    for own in OWN_LOGGERS:
        own.addHandler(handler)
    for own in without_level:
        own.setLevel(logging.INFO)
    try:
        yield
    finally:
        for own in OWN_LOGGERS:
            own.removeHandler(handler)
        for own in without_level:
            own.setLevel(logging.NOTSET)


@contextmanager
def reader_may_leave(stream: TextIO | None) -> Iterator[None]:
    """Go on after the block where the one who reads a stream of this process has left."""
    try:
        yield
    except BrokenPipeError:
        assert stream is not None
        send_nowhere(stream)


def send_nowhere(stream: TextIO) -> None:
    """Let what is written to a stream of this process go nowhere: its reader has left, and Python complains at exit."""
    with suppress(OSError):  # a stream that is no file has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def duration(seconds: float) -> str:
    """Text of a length of time, short for people.

    >>> duration(59.4), duration(61), duration(3 * 3600 + 60)
    ('59 s', '1:01 min', '3:01 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
