"""Reports of a worker's steps to the driver, and the driver's request to stop back, beside the training."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray

from orchestrator.repeating import repeating

_INTERVAL_S = 0.5


class StepReports:
    """Number of steps that have ended, and whether the run is to stop; neither costs the training loop a message."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._is_stopping = False

    def note(self, step: int) -> bool:
        """Take down the steps that have begun (on CPUs: ended). Returns whether the driver has asked to stop."""
        self._step = step
        return self._is_stopping

    def exchange(self, report: Callable[[int | None], bool]) -> None:
        """Report the steps and learn of a request to stop."""
        self._is_stopping = report(self._step)


@contextmanager
def reporting_steps(event_queue: Any) -> Iterator[StepReports]:
    """Exchange reports with the driver's event queue from a thread, twice a second, during the block."""
    reports = StepReports()

    def exchange() -> bool:
        try:
            reports.exchange(lambda step: bool(ray.get(event_queue.report_step.remote(step))))
        except ray.exceptions.RayError:
            return False  # the queue is lost: the next event says so
        return True

    with repeating(exchange, _INTERVAL_S, "step-reports"):
        yield reports
