"""Time until a sweep ends, estimated from how long its trials take and from how many run at a time."""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.results import MetricEvent


class TrainingTime(NamedTuple):
    """Seconds that a trial trains, by its speed. Evaluations are not counted."""

    left_s: float
    """Seconds of the steps that are to come."""
    whole_s: float


def training_time(measured: MetricEvent, num_epochs: float, batch_size: int) -> TrainingTime | None:
    """Time of a trial's training by its speed at a measurement; None where that has no speed.

    >>> training_time(MetricEvent(50, "train", {"examples_per_s": 16.0}, epoch=0.5), 3.0, 32)
    TrainingTime(left_s=500.0, whole_s=600.0)
    """
    examples_per_s = measured.values.get("examples_per_s", 0.0)
    if not measured.epoch or not examples_per_s > 0:
        return None
    done_s = measured.step * batch_size / examples_per_s
    whole_s = done_s * num_epochs / measured.epoch
    return TrainingTime(max(0.0, whole_s - done_s), whole_s)


def seconds_left(typical_s: float, running_left_s: Sequence[float], num_waiting: int, at_a_time: int) -> float:
    """Seconds until the last trial ends, if a waiting one begins at once and takes as long as a typical one.

    Args:
        typical_s: seconds of a trial.
        running_left_s: seconds that are left of each trial that runs.
        num_waiting: trials that have not begun.
        at_a_time: trials that run at a time where enough are left.

    >>> seconds_left(60.0, [60.0], 3, at_a_time=1), seconds_left(60.0, [30.0, 60.0], 2, at_a_time=2)
    (240.0, 120.0)
    >>> seconds_left(60.0, [0.0], 0, at_a_time=4)
    0.0
    """
    ends = [*running_left_s, *[0.0] * (min(at_a_time, len(running_left_s) + num_waiting) - len(running_left_s))]
    heapq.heapify(ends)
    for _ in range(num_waiting):
        heapq.heapreplace(ends, ends[0] + typical_s)
    return max(ends, default=0.0)
