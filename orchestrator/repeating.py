"""Repeated work beside a block of code, from a thread: heartbeats, looks at what changes, words to another process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(
    action: Callable[[], bool], every_s: float, name: str, *, join_timeout_s: float | None = None
) -> Iterator[None]:
    """Call a function from a thread during the block, for the first time after `every_s`, until it returns False.

    The block ends once a call that is under way has ended.

    Args:
        action: work that is done each time; returns whether it is to be done again. What it raises ends the thread.
        every_s: seconds between the end of a call and the next one.
        name: name of the thread.
        join_timeout_s: longest wait at the end of the block for a call that is under way; without end when left out.
    """
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(every_s) and action():
            pass

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(join_timeout_s)
