"""Streams of this process that a person may read, or leave (`2>&1 | head`, a closed terminal)."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing import TypeGuard


def is_terminal(stream: TextIO | None) -> "TypeGuard[TextIO]":
    """Whether a stream of this process is a terminal; the shell may have closed it, which leaves None."""
    return stream is not None and stream.isatty()


def is_pipe(stream: TextIO | None) -> bool:
    """Whether a stream of this process is a pipe, whose reader may write to the same terminal."""
    if stream is None:
        return False
    with suppress(OSError):  # a stream that is no file has no descriptor
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    return False


def terminal_width(stream: TextIO | None) -> int | None:
    """Columns of the terminal that a stream is; None where it is none, or does not say."""
    if not is_terminal(stream):
        return None
    with suppress(OSError):
        return os.get_terminal_size(stream.fileno()).columns or None
    return None


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
