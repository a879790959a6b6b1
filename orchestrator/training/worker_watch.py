"""Watch of a driver over its workers: warns ever more rarely of what does not go on, and ends the run at a limit.

| what is seen | what follows |
| --- | --- |
| fewer workers have begun than were asked, and have no place | a warning after 10, 20, 40, … s, with what is missing |
| fewer workers have begun than were asked | a warning after 1, 2, 4, 8, … minutes; at the limit a ClusterError |
| no step has ended for a minute, and for ten times the usual | the same; at the limit a RunFailedError |
| a worker failed, and Ray starts all of them again | a warning at once, with rank, host and cause |
| all of them have begun again | a line with the step that they go on from, and their hosts |
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from bert_core.errors import CheckpointError
from orchestrator.base.console import duration
from orchestrator.base.errors import ClusterError, RunFailedError
from orchestrator.base.periodic import Reminders, Shortage
from orchestrator.base.results import Event
from orchestrator.training.checkpoints import Checkpoints
from orchestrator.training.event_queue import WorkersStatus

SLOW_FACTOR = 10.0
"""A step that takes so many times the usual is worth a warning."""
POLL_S = 0.3
logger = logging.getLogger(__name__)


class WorkerWatch:
    """Watch over one group of workers, fed with what is known of them several times a second.

    Args:
        num_workers: number of workers, or the fewest of them: the first to begin says how many they are.
        max_wait_s: time without progress after which the run ends.
        find_shortage: finds what the workers need and what the cluster has free; asked only when something is said.
        how_to_go_on: last words of an error.
        reports_steps: whether the workers say how many steps have ended; of others only the beginning is watched.
        none_begun: text for a single worker that has not begun.
        newest_step: step of the checkpoint that workers who begin go on from; None where they begin anew.
    """

    def __init__(
        self,
        num_workers: int,
        max_wait_s: float,
        find_shortage: Callable[[], Shortage],
        how_to_go_on: str,
        *,
        reports_steps: bool = True,
        none_begun: str = "waiting for the training process to begin",
        newest_step: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._least_workers, self._max_wait_s, self._reports_steps = num_workers, max_wait_s, reports_steps
        self._find_shortage, self._how_to_go_on, self._none_begun = find_shortage, how_to_go_on, none_begun
        self._clock, self._newest_step = clock, newest_step
        self._since = clock()
        self._reminders = Reminders(find_shortage)
        self._seen = WorkersStatus()
        self._starts_again = False
        self._num_steps, self._steps_s = 0, 0.0

    def look(self, status: WorkersStatus) -> None:
        """Compare the workers with the last look; warn of what is wrong.

        Raises: ClusterError, RunFailedError where nothing has gone on for too long.
        """
        self._tell_restarts(status)
        if status != self._seen:
            self._note_progress(status)
        waited_s, slow_s = self._clock() - self._since, SLOW_FACTOR * self._usual_step_s()
        has_begun = self._have_all_begun(status)
        if waited_s < slow_s or (has_begun and not self._reports_steps):
            return
        problem = self._problem(status, waited_s)
        if waited_s < self._max_wait_s:
            self._reminders.look(waited_s, problem, logger, has_begun=has_begun)
            return
        kind = RunFailedError if has_begun else ClusterError
        raise kind(
            f"{problem}; {self._find_shortage().text}. That is longer than execution.max_wait_minutes "
            f"({self._max_wait_s / 60:g}) allows; {self._how_to_go_on}"
        )

    def _tell_restarts(self, status: WorkersStatus) -> None:
        """Say which workers have failed since the last look, and where all of them have begun again."""
        failures = status.failures[len(self._seen.failures) :]
        for failure in failures:
            logger.warning(str(failure))
        self._starts_again |= bool(failures)
        if self._starts_again and self._have_all_begun(status):
            self._starts_again = False
            hosts = ", ".join(dict.fromkeys(place.host for place in status.places))
            logger.info(f"starting again from {self._starting_point()} on {hosts}")

    def _starting_point(self) -> str:
        try:
            step = self._newest_step()
        except (CheckpointError, OSError):  # the workers say what is wrong with it
            return "the last checkpoint"
        return "the beginning" if step is None else f"step {step:,}"

    def _num_workers(self, status: WorkersStatus) -> int:
        return max([self._least_workers, *(place.num_workers for place in status.places)])

    def _have_all_begun(self, status: WorkersStatus) -> bool:
        return len(status.places) >= self._num_workers(status)

    def _note_progress(self, status: WorkersStatus) -> None:
        now = self._clock()
        if status.step is not None and self._seen.step is not None and status.step > self._seen.step:
            self._num_steps += status.step - self._seen.step
            self._steps_s += now - self._since
        self._since, self._seen = now, status
        self._reminders.reset()

    def _usual_step_s(self) -> float:
        return self._steps_s / self._num_steps if self._num_steps else 0.0

    def _problem(self, status: WorkersStatus, waited_s: float) -> str:
        num_begun, num_workers = len(status.places), self._num_workers(status)
        waited = duration(waited_s)
        if num_begun < num_workers == 1:
            return f"{self._none_begun} for {waited}"
        if num_begun < num_workers:
            begun = "none of them has" if not num_begun else f"{num_begun} of them have"
            return f"waiting for {num_workers} training workers to begin for {waited}, {begun}"
        places = ", ".join(f"rank {place.rank} on {place.host} (process {place.pid})" for place in status.places)
        if status.step is None:
            return f"no training step has ended yet, {waited} after the workers began: {places}"
        usual = f", where the usual is {self._usual_step_s():.2g} s" if self._num_steps else ""
        return f"no training step has ended for {waited}{usual}; the last was step {status.step:,}; {places}"


@dataclass
class DriverLoop:
    """A driver's loop: it takes the events of its workers until their work has ended."""

    queue: Any
    """The event queue's actor."""
    on_event: Callable[[Event], None]
    """Records an event: each in order, and again one during which it was interrupted."""
    watch: WorkerWatch
    checks: Sequence[Callable[[], None]]
    """Called several times a second; each raises when waiting is in vain: a lost cluster, another's run."""
    has_ended: Callable[[], bool]
    run_folder: str
    safe_place: str
    """Place at which the workers save, in words: `after the next evaluation`."""
    _num_recorded: int = 0

    def run(self) -> WorkersStatus:
        """Wait until the work has ended; returns the workers' last status.

        Raises: KeyboardInterrupt after the workers have ended, whose attribute `step` is the step from which the run
            goes on, or None where it begins anew; what `take_events` and `WorkerWatch.look` raise.
        """
        try:
            return self._run()
        except KeyboardInterrupt as interrupt:
            if ray.get(self.queue.status.remote()).places:
                logger.info(f"stopping: saving a checkpoint {self.safe_place}; Ctrl-C again leaves at once")
                ray.get(self.queue.stop.remote())
                self._run()
            step = Checkpoints(self.run_folder).newest_step()
            vars(interrupt)["step"] = step
            logger.info("stopped before the first checkpoint" if step is None else f"stopped after step {step:,}")
            raise

    def _run(self) -> WorkersStatus:
        while True:
            has_ended = self.has_ended()  # before taking events, so that none is left at the end
            status = self.take_events()
            if has_ended:
                return status
            self.watch.look(status)
            for check in self.checks:
                check()
            time.sleep(POLL_S)

    def take_events(self) -> WorkersStatus:
        """Pass on the events that have arrived; returns the workers' status.

        Raises: an error that a worker put into the queue; RayError when the queue is lost; what `on_event` raises.
        """
        status: WorkersStatus
        events, status = ray.get([self.queue.take.remote(self._num_recorded), self.queue.status.remote()])
        for event in events:
            if isinstance(event, Exception):
                raise event
            self.on_event(event)
            self._num_recorded += 1
        return status
