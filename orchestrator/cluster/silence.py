"""Silence of work on the cluster: a driver that waits for tasks without a place says within a minute what is missing.

Ray Data waits for resources that others hold for ever, and says nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.cluster.processes import Processes
from orchestrator.cluster.shortage import describe_shortage
from orchestrator.progress import duration

SAY_AFTER_S = 60.0
_LOOK_EVERY_S = 1.0
logger = logging.getLogger(__name__)


class SilenceWatch:
    """Watch over work that should bring something now and then.

    Args:
        problem: what has not come, as a person is told: `no text has been tokenized`.
        describe_shortage: says what the work needs and what the cluster has free.
    """

    def __init__(
        self, problem: str, describe_shortage: Callable[[], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._problem, self._describe_shortage, self._clock = problem, describe_shortage, clock
        self.note()

    def note(self) -> None:
        """Note that something has come."""
        self._since, self._say_after_s = self._clock(), SAY_AFTER_S

    def look(self) -> None:
        """Say what is missing where nothing has come for long; ever more rarely while that lasts."""
        waited_s = self._clock() - self._since
        if waited_s >= self._say_after_s:
            self._say_after_s = 2 * waited_s
            logger.warning(f"{self._problem} for {duration(waited_s)}; {self._describe_shortage()}")


@contextmanager
def telling_silence(problem: str, needed: Processes) -> Iterator[SilenceWatch]:
    """Yield a watch that a thread looks at until the end of the block, for work on the connected Ray."""
    watch, done = SilenceWatch(problem, lambda: describe_shortage(needed)), threading.Event()

    def look() -> None:
        while not done.wait(_LOOK_EVERY_S):
            watch.look()

    threading.Thread(target=look, name="silence", daemon=True).start()
    try:
        yield watch
    finally:
        done.set()
