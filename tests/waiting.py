"""Waiting for another process or thread: with much patience, since a busy machine is no failure."""

import time
from collections.abc import Callable
from typing import NoReturn

PATIENCE_S = 600.0
"""Seconds that a test waits for another process or thread; what hangs is ended by pytest's own, longer timeout."""


def wait_until(condition: Callable[[], bool], problem: str) -> None:
    """Ask until a condition holds; where another process brings it about, there is no event to wait for.

    Raises: AssertionError with `problem`.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, problem
        time.sleep(0.05)


def wait_for_interruption() -> NoReturn:
    """Wait in short pieces: a signal that comes just before a lock blocks is handled only when that wait is over."""
    while True:
        time.sleep(0.05)
