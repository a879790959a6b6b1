"""Watch of a driver over its workers: it says within a minute that they do not begin or that no step ends, with what is
missing, says it again ever more rarely, and ends the run when that lasts too long.

| what is seen | what follows |
| --- | --- |
| fewer workers have begun than were asked | a warning after 1, 2, 4, 8, … minutes; after the limit a ClusterError |
| no step has ended for a minute, and for ten times the usual | the same; after the limit a RunFailedError |
| a worker failed, and Ray starts all of them again | a warning at once, with rank, host and cause |
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.errors import ClusterError, RunFailedError
from orchestrator.progress import duration
from orchestrator.training.event_queue import WorkersStatus

SAY_AFTER_S = 60.0
SLOW_FACTOR = 10.0
"""A step that takes so many times the usual is worth a warning."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Expectation:
    """Expectation of a driver about its workers."""

    num_workers: int
    max_wait_s: float
    """Time without progress after which the run ends."""
    reports_steps: bool = True
    """Whether the workers say how many steps have ended; of others only the beginning is watched."""
    none_begun: str = "waiting for the training process to begin"
    """Words that say of a single worker that it has not begun; how long that has lasted follows."""


class WorkerWatch:
    """Watch over one group of workers, fed with what is known of them several times a second.

    Args:
        describe_shortage: says what the workers need and what the cluster has free; asked only when something is said.
        how_to_go_on: the last words of an error.
    """

    def __init__(
        self,
        expected: Expectation,
        describe_shortage: Callable[[], str],
        how_to_go_on: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._expected, self._describe_shortage, self._how_to_go_on = expected, describe_shortage, how_to_go_on
        self._clock = clock
        self._since = clock()
        self._first_s = self._say_after_s = min(SAY_AFTER_S, expected.max_wait_s)
        self._seen = WorkersStatus()
        self._num_steps, self._steps_s = 0, 0.0

    def look(self, status: WorkersStatus) -> None:
        """Compare what is known of the workers with the last look; say what is wrong.

        Raises: ClusterError, RunFailedError where nothing has gone on for too long.
        """
        for failure in status.failures[len(self._seen.failures) :]:
            logger.warning(str(failure))
        if status != self._seen:
            self._note_progress(status)
        waited_s, usual_s = self._clock() - self._since, self._usual_step_s()
        if waited_s < max(self._say_after_s, SLOW_FACTOR * usual_s) or not self._is_watched(status):
            return
        self._say_after_s = 2 * max(waited_s, SAY_AFTER_S)
        has_ended = waited_s >= max(self._expected.max_wait_s, SLOW_FACTOR * usual_s)
        problem = f"{self._problem(status, waited_s)}; {self._describe_shortage()}"
        if not has_ended:
            self._say_after_s = min(self._say_after_s, self._expected.max_wait_s)
            logger.warning(problem)
            return
        kind = ClusterError if len(status.places) < self._expected.num_workers else RunFailedError
        raise kind(
            f"{problem}. That is longer than execution.max_wait_minutes ({self._expected.max_wait_s / 60:g}) allows; "
            f"{self._how_to_go_on}"
        )

    def _note_progress(self, status: WorkersStatus) -> None:
        now = self._clock()
        if status.step is not None and self._seen.step is not None and status.step > self._seen.step:
            self._num_steps += status.step - self._seen.step
            self._steps_s += now - self._since
        self._since, self._say_after_s, self._seen = now, self._first_s, status

    def _usual_step_s(self) -> float:
        return self._steps_s / self._num_steps if self._num_steps else 0.0

    def _is_watched(self, status: WorkersStatus) -> bool:
        return self._expected.reports_steps or len(status.places) < self._expected.num_workers

    def _problem(self, status: WorkersStatus, waited_s: float) -> str:
        num_begun, num_workers = len(status.places), self._expected.num_workers
        waited = duration(waited_s)
        if num_begun < num_workers == 1:
            return f"{self._expected.none_begun} for {waited}"
        if num_begun < num_workers:
            begun = "none of them has" if not num_begun else f"{num_begun} of them have"
            return f"waiting for {num_workers} training workers to begin for {waited}, {begun}"
        places = ", ".join(f"rank {place.rank} on {place.host} (process {place.pid})" for place in status.places)
        if status.step is None:
            return f"no training step has ended yet, {waited} after the workers began: {places}"
        usual = f", where the usual is {self._usual_step_s():.2g} s" if self._num_steps else ""
        return f"no training step has ended for {waited}{usual}; the last was step {status.step:,}; {places}"
