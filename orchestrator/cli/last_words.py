"""Last words of a process that a second signal ends at once: how to go on with what it was doing."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_STDERR = 2
LAST_DEED_S = 2.0
"""Longest time that a last deed is waited for."""


@dataclass(frozen=True)
class _LastWords:
    text: str
    leave: Callable[[], str] | None


_words: list[_LastWords] = []


@contextmanager
def last_words(text: str, leave: Callable[[], str] | None = None) -> Iterator[None]:
    """Have a line said where the process is ended by a second signal within the block.

    Args:
        leave: last deed, as to record the end; returns the line to say in place of `text`. It is done in a thread of
            its own, as the main thread may hold whatever lock, and for a moment at most.
    """
    _words.append(_LastWords(text, leave))
    try:
        yield
    finally:
        _words.pop()


def has_last_words() -> bool:
    """Whether there is a line to be said: a run is at work."""
    return bool(_words)


def say_last_words(timeout_s: float = LAST_DEED_S) -> None:
    """Do the last deed and write the line, below whatever stands on the terminal.

    A signal's handler must not use Python's streams.
    """
    text = "".join(f"{_text_of(words, timeout_s)}\n" for words in _words[-1:])
    with suppress(OSError):
        os.write(_STDERR, f"\n{text}".encode())


def _text_of(words: _LastWords, timeout_s: float) -> str:
    leave = words.leave
    if leave is None:
        return words.text
    said = [words.text]

    def act() -> None:
        with suppress(Exception):  # the process ends now, whatever becomes of its last deed
            said.append(leave())

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return said[-1]
