"""Last words of a process that a second signal ends at once: how to go on with what it was doing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STDERR = 2
_words: list[str] = []


@contextmanager
def last_words(text: str) -> Iterator[None]:
    """Have a line said where the process is ended by a second signal within the block."""
    _words.append(text)
    try:
        yield
    finally:
        _words.pop()


def has_last_words() -> bool:
    """Whether there is a line to be said: a run is at work."""
    return bool(_words)


def say_last_words() -> None:
    """Write the line, below whatever stands on the terminal; a signal's handler must not use Python's streams."""
    with suppress(OSError):
        os.write(_STDERR, ("\n" + "".join(f"{text}\n" for text in _words[-1:])).encode())
