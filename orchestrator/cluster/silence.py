"""Silence of work on the cluster: a driver that waits for tasks says what is missing, within seconds where they have no
place, within a minute where they bring nothing.

Ray Data waits for resources that others hold for ever, and says nothing.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.cluster.processes import Processes
from orchestrator.cluster.shortage import find_shortage
from orchestrator.progress import duration
from orchestrator.reminders import Reminders, Shortage
from orchestrator.repeating import repeating

_LOOK_EVERY_S = 1.0
logger = logging.getLogger(__name__)


class SilenceWatch:
    """Watch over work that should bring something now and then.

    Args:
        problem: what has not come, as a person is told: `no text has been tokenized`.
        find_shortage: says what the work needs and what the cluster has free.
    """

    def __init__(
        self, problem: str, find_shortage: Callable[[], Shortage], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._problem, self._clock = problem, clock
        self._reminders = Reminders(find_shortage)
        self._since, self._has_begun = clock(), False

    def note(self) -> None:
        """Note that something has come."""
        self._since, self._has_begun = self._clock(), True
        self._reminders.begin_anew()

    def look(self) -> None:
        """Say what is missing where nothing has come for long; ever more rarely while that lasts."""
        waited_s = self._clock() - self._since
        problem = f"{self._problem} for {duration(waited_s)}"
        self._reminders.look(waited_s, problem, logger, has_begun=self._has_begun)


@contextmanager
def telling_silence(problem: str, needed: Processes) -> Iterator[SilenceWatch]:
    """Yield a watch that a thread looks at until the end of the block, for work on the connected Ray."""
    watch = SilenceWatch(problem, lambda: find_shortage(needed))

    def look() -> bool:
        watch.look()
        return True

    with repeating(look, _LOOK_EVERY_S, "silence", join_timeout_s=0.0):  # a look may wait for the cluster's head
        yield watch
