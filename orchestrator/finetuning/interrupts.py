"""Signals that end a process, held back while Ray Tune works: an exception from within its loop would leave trials."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], object]


@dataclass
class HeldInterrupt:
    """Interruption that has come and is not raised yet."""

    error: KeyboardInterrupt | None = None
    """The exception that the handler of the first signal has raised."""


@contextmanager
def held_interrupts() -> Iterator[HeldInterrupt]:
    """Hold back what the first SIGINT, SIGTERM or SIGHUP raises within the block, for the caller to raise in good time.

    Each signal goes to the handler that was there before, and so does a second one, whose exception is raised at once.
    A handler that puts others in its place, as the command line's does to leave at once, has its way. Outside of the
    main thread nothing is held.
    """
    held = HeldInterrupt()
    if threading.current_thread() is not threading.main_thread():
        yield held
        return
    before = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}

    def hold(number: int, frame: FrameType | None) -> None:
        try:
            before[signal.Signals(number)](number, frame)
        except KeyboardInterrupt as error:
            if held.error is not None:
                raise
            held.error = error

    for number in before:
        signal.signal(number, hold)
    try:
        yield held
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is hold:
                signal.signal(number, handler)
