"""The handler that writes log lines to stderr, above a status line and the view of a run where that is a terminal.

Whoever reads a stream of this process may leave (`2>&1 | head`, a closed terminal): what is said later goes to the
run's log alone.
"""

import logging
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from orchestrator.base.console import log_lines
from orchestrator.base.console.run_views import RunView, Shown

if TYPE_CHECKING:
    from typing import TypeGuard

    from rich.live import Live

PLAIN_INTERVAL_S = 10.0
"""Time between two status lines where each is a line that stays."""
_FRAMES_PER_S = 5
_STDERR = 2
logger = logging.getLogger(__name__)


def is_terminal(stream: TextIO | None) -> "TypeGuard[TextIO]":
    """Whether a stream of this process is a terminal; the shell may have closed it, which leaves None."""
    return stream is not None and stream.isatty()


def _is_pipe(stream: TextIO | None) -> bool:
    """Whether a stream is a pipe, whose reader may write to the same terminal (`| head`)."""
    with suppress(OSError):  # a stream that is no file has no descriptor
        return stream is not None and stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    return False


def terminal_width(stream: TextIO | None) -> int | None:
    """Columns of the terminal that a stream is; None where it is none, or does not say."""
    with suppress(OSError):
        return os.get_terminal_size(stream.fileno()).columns or None if is_terminal(stream) else None
    return None


@contextmanager
def ignoring_broken_pipe(stream: TextIO | None) -> Iterator[None]:
    """Go on after the block where the reader of a stream of this process has left."""
    try:
        yield
    except BrokenPipeError:
        assert stream is not None
        redirect_to_null(stream)


def redirect_to_null(stream: TextIO) -> None:
    """Redirect a stream whose reader has left to the null device, so that Python does not complain at exit."""
    with suppress(OSError):  # a stream that is no file has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Progress(logging.Handler):
    """Handler that writes records to stderr as plain lines, above a status line.

    `show_progress` makes the one of a process and shares it. Any thread may call it: what is redrawn changes under the
    handler's lock, which `logging` holds around `emit`. Only `interrupted` does without: a signal's handler must not
    wait for another thread.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        self.setFormatter(log_lines.LineFormatter())
        self._stream: TextIO | None = stream or sys.stderr  # None where the shell closed it (`2>&-`)
        self._can_overwrite = (
            is_terminal(self._stream) and os.environ.get("TERM") != "dumb" and not _is_pipe(sys.stdout)
        )
        self._live: Live | None = None
        self._shown = Shown()
        self._pace = log_lines.Pace(PLAIN_INTERVAL_S)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line above the redrawn lines; a status becomes the status line."""
        line = self.format(record)
        if self._can_overwrite and log_lines.is_under_way(record):
            self._set_status(line)
            return
        with self._ignoring_lost_stream():
            line = log_lines.folded(line, terminal_width(self._stream))
            if self._live is not None:
                self._live.console.out(line, highlight=False)
            else:
                self._write(line)

    def status(self, line: str) -> None:
        """Replace the status line; every `PLAIN_INTERVAL_S` it is a log line as well."""
        with self._alone():
            if self._can_overwrite:
                self._set_status(line)
            is_due = self._pace.is_due()
        if is_due:  # without the lock, since other handlers have locks of their own
            logger.info(line, extra=log_lines.UNDER_WAY)

    def show(self, view: RunView) -> None:
        """Show the view of a run, in place of the one before. Where nothing can be written over, nothing is shown."""
        with self._alone():
            if self._can_overwrite:
                shown = self._shown if self._shown.view else Shown(stage=self._shown.stage)
                self._draw(replace(shown, view=view))

    @contextmanager
    def in_stage(self, stage: str) -> Iterator[None]:
        """Show the running stage of a pipeline, as a text, during the block."""
        self.clear()
        self._shown = Shown(stage=stage)
        logger.info(stage)
        try:
            yield
        finally:
            self.clear()
            self._shown = Shown()

    def interrupted(self, line: str) -> bool:
        """Have a line shown from within a signal's handler; False where no thread redraws the terminal."""
        if self._live is None:
            return False
        self._shown = replace(self._shown, status=line, since=time.monotonic())
        return True

    def _write(self, line: str) -> None:
        if self._stream is not None:
            self._stream.write(line + "\n")
            self._stream.flush()

    def _set_status(self, line: str) -> None:
        since = self._shown.since if self._shown.status == line else time.monotonic()
        self._draw(replace(self._shown, status=line, since=since))

    def _draw(self, shown: Shown) -> None:
        """Draw; the caller holds the lock."""
        self._shown = shown
        with self._ignoring_lost_stream():
            if self._live is None:
                self._live = self._start_live()
            self._live.refresh()

    def _start_live(self) -> "Live":
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        console = Console(file=self._stream, force_terminal=True)
        spinner = Spinner("dots")

        def frame() -> Text:
            lines = "\n".join(self._shown.lines(*console.size))
            return Text(f"{spinner.render(console.get_time())} {lines}", no_wrap=True, overflow="ellipsis")

        live = Live(
            get_renderable=frame,
            console=console,
            transient=True,
            refresh_per_second=_FRAMES_PER_S,
            redirect_stdout=False,  # rich would send it to this console's stream; stdout is data
            redirect_stderr=False,
        )
        live.start()
        console.show_cursor(True)  # a process that is killed must not leave the terminal without one
        return live

    def clear(self) -> None:
        """Remove all that is redrawn."""
        with self._alone():
            if self._live is not None:
                with self._ignoring_lost_stream():
                    self._live.stop()  # which draws a last time
                self._live = None
            self._shown = Shown(stage=self._shown.stage)

    def close(self) -> None:
        """Remove all that is redrawn for good."""
        self.clear()
        super().close()

    def _alone(self) -> AbstractContextManager[object]:
        """The handler's lock, which a thread that holds it may take again."""
        assert self.lock is not None  # made with the handler
        return self.lock

    @contextmanager
    def _ignoring_lost_stream(self) -> Iterator[None]:
        """Go on where the stream cannot be written any more: from then on status lines are log lines."""
        try:
            yield
        except OSError:
            assert self._stream is not None
            redirect_to_null(self._stream)
            self._live, self._stream, self._can_overwrite = None, None, False


def _present() -> Progress | None:
    """The process's handler, while a block shows progress."""
    return next((handler for handler in log_lines.OWN_LOGGERS[0].handlers if isinstance(handler, Progress)), None)


@contextmanager
def show_progress() -> Iterator[Progress]:
    """Show the project's log lines on stderr during the block; inner blocks share the outer one's terminal."""
    outer = _present()
    if outer is None:
        with closing(Progress()) as progress, log_lines.attached(progress):
            yield progress
        return
    try:
        yield outer
    finally:
        outer.clear()


def clear_screen() -> None:
    """Remove what is redrawn, before something else is written to the terminal."""
    progress = _present()
    if progress is not None:
        progress.clear()


def say_interrupted(line: str) -> None:
    """Show a line from a signal handler, which must not use Python's streams."""
    progress = _present()
    if progress is None or not progress.interrupted(line):
        with suppress(OSError):
            os.write(_STDERR, f"\n{line}\n".encode() if os.isatty(_STDERR) else f"{line}\n".encode())
