"""Periodic work from a thread beside other work, and warnings of a trouble that lasts.

A warning comes soon where work has no place yet, else after a minute; then ever more rarely, each time that the trouble
has lasted twice as long. Who waits for workers, trials or tasks asks `Reminders`.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SAY_AFTER_S = 60.0
"""Time without progress, or without a start, after which a warning comes."""
ASK_EVERY_S = 5.0
"""Time between two questions whether work that has not begun has a place. Unlike slow work, work without one does
nothing at all; it is told after two answers, since what gets a place has none for a moment."""


@dataclass(frozen=True)
class Shortage:
    """Requested resources beside the cluster's free ones at one moment."""

    is_waiting: bool
    """Whether the work, or a part of it, has no place yet."""
    text: str
    """Needed resources, free ones of each node, other requests, all nodes, nodes that are starting."""


class Reminders:
    """Exponential backoff of warnings of one trouble; the cluster is asked only when one is due."""

    def __init__(self, find_shortage: Callable[[], Shortage]) -> None:
        self._find_shortage = find_shortage
        self.reset()

    def reset(self) -> None:
        self._told_s, self._ask_at_s, self._was_waiting = 0.0, ASK_EVERY_S, False

    def look(self, lasted_s: float, problem: str, logger: logging.Logger, *, has_begun: bool) -> None:
        """Warn of a trouble where it is time to.

        Args:
            lasted_s: time for which it has lasted.
            problem: what is wrong and for how long, without the reason.
            has_begun: whether some of the work has been seen to run; else it may be without a place.
        """
        if lasted_s >= max(SAY_AFTER_S, 2 * self._told_s):
            shortage = self._find_shortage()
            is_news = not self._told_s and not shortage.is_waiting
            again = f"; it may only be slow: if it lasts, this is said again after {2 * lasted_s / 60:.0f} minutes"
            logger.warning(f"{problem}; {shortage.text}{again if is_news else ''}")
            self._told_s = lasted_s
        elif not has_begun and lasted_s >= max(self._ask_at_s, 2 * self._told_s):
            self._ask_at_s = lasted_s + ASK_EVERY_S
            shortage = self._find_shortage()
            if shortage.is_waiting and self._was_waiting:
                self._told_s = lasted_s
                logger.warning(f"waiting: {shortage.text}")
            self._was_waiting = shortage.is_waiting


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
