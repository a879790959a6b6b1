"""The driver's wait for its workers: events are passed on, their progress is watched, and an interrupt lets them save.

| what happens | what follows |
| --- | --- |
| the first interrupt (Ctrl-C, SIGTERM) while workers train | they save a checkpoint and end; then it goes on |
| an interrupt before any worker has begun | it goes on at once: there is nothing to save |
| a second interrupt | it goes on at once |
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from orchestrator.training.checkpoints import Checkpoints
from orchestrator.training.event_queue import EventReader, WorkersStatus
from orchestrator.training.worker_watch import WorkerWatch

POLL_S = 0.3
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Follower:
    """A driver that waits for work of which it has been told through an event queue."""

    queue: Any
    """The actor."""
    reader: EventReader
    watch: WorkerWatch
    checks: Sequence[Callable[[], None]]
    """Called several times a second; each raises when waiting is in vain: a lost cluster, another's run."""
    has_ended: Callable[[], bool]
    run_folder: str
    safe_place: str
    """Place at which the workers save, as a person is told: `after the next evaluation`."""

    def follow(self) -> WorkersStatus:
        """Wait until the work has ended; returns what is known of the workers then.

        Raises: KeyboardInterrupt after the workers have ended, whose attribute `step` is the step from which the run
            goes on, or None where it begins anew; what `EventReader.read` and `WorkerWatch.look` raise.
        """
        try:
            return self._follow()
        except KeyboardInterrupt as interrupt:
            if ray.get(self.queue.status.remote()).places:
                logger.info(f"stopping: saving a checkpoint {self.safe_place}; Ctrl-C again leaves at once")
                ray.get(self.queue.stop.remote())
                self._follow()
            step = Checkpoints(self.run_folder).newest_step()
            vars(interrupt)["step"] = step
            logger.info("stopped before the first checkpoint" if step is None else f"stopped after step {step:,}")
            raise

    def _follow(self) -> WorkersStatus:
        while True:
            has_ended = self.has_ended()  # before reading, so that nothing is left unread at the end
            status = self.reader.read()
            if has_ended:
                return status
            self.watch.look(status)
            for check in self.checks:
                check()
            time.sleep(POLL_S)
