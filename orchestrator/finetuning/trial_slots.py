"""Slots of a sweep's trials on the cluster: how many Tune gets at a time, where each may be placed, and the watch that
says what is missing while none of them runs.

Unless told otherwise, Tune asks for one process at a time, and gives a pending one up as soon as another trial ends and
leaves its process for reuse. Where trials are shorter than the start of a process, such a sweep never grows beyond one.
So Tune may ask for many, and gets as many trials as fit on the cluster with all nodes that its autoscaler may start,
and one more: the pending trial tells an autoscaler that does not say what it may start.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from ray import tune

from orchestrator.base.periodic import Shortage
from orchestrator.cluster.capacity import (
    Processes,
    choose_nodes,
    cluster_room,
    connected_nodes,
    holds_a_place,
    share_of_cores,
)
from orchestrator.cluster.shortage import find_shortage
from orchestrator.specs.sweep import SweepExecutionSpec
from orchestrator.storage.attempts import how_to_go_on
from orchestrator.training.worker_watch import WorkerWatch

_COUNT_EVERY_S = 5.0


class TrialSlots:
    """Number of trials that Tune has at work, against the places on the connected Ray, counted as nodes come and go."""

    def __init__(self, execution: SweepExecutionSpec, clock: Callable[[], float] = time.monotonic) -> None:
        self.execution, self._clock = execution, clock
        self._num_places, self._counted_at = 0, -_COUNT_EVERY_S
        self.num_taken = 0
        """Trials that run or wait for a process, counted anew at each step: Tune does not tell its searcher of an end
        where a process could not be used again."""

    def has_free(self) -> bool:
        now = self._clock()
        if now - self._counted_at >= _COUNT_EVERY_S:
            self._num_places, self._counted_at = cluster_room(placed_trial(self.execution)), now
        most = self.execution.max_concurrent_trials
        return self.num_taken <= self._num_places and (most is None or self.num_taken < most)


def trial_group(execution: SweepExecutionSpec) -> tune.PlacementGroupFactory:
    """The placement group that Tune asks for, for a trial that is handed out now."""
    needed = placed_trial(execution)
    selector = {"bundle_label_selector": [dict(needed.labels)]} if needed.labels else {}
    return tune.PlacementGroupFactory([dict(needed.resources)], **selector)


def placed_trial(execution: SweepExecutionSpec) -> Processes:
    """The process of a trial that is handed out now, with the labels of the nodes that it may be on.

    On a local Ray it has its cores to itself: two trials that share one take longer than one after the other.
    """
    assert execution.gpus_per_trial != "auto", "the sweep has looked at the cluster"
    gpus = {"GPU": execution.gpus_per_trial} if execution.gpus_per_trial else {}
    needed, nodes = Processes(1, {"CPU": execution.cpus_per_trial} | gpus), connected_nodes()
    resources = {**needed.resources, **share_of_cores(execution.cpus_per_trial, nodes)}
    return replace(needed, resources=resources, labels=choose_nodes(needed, execution.on_head, nodes))


def watch_trials(execution: SweepExecutionSpec, run_id: str) -> WorkerWatch:
    """A watch that warns within seconds while no trial runs, and ends the sweep when that lasts too long. Tune itself
    waits forever, and says nothing.
    """
    return WorkerWatch(
        1,
        60 * execution.max_wait_minutes,
        lambda: find_trial_shortage(execution),
        how_to_go_on(run_id),
        reports_steps=False,
        none_begun="no trial has found a place to run",
    )


def find_trial_shortage(execution: SweepExecutionSpec) -> Shortage:
    """Compare what a trial needs with what the connected Ray's nodes have free at this moment.

    Tune is given one trial more than fits. It waits, which is no trouble while another one is starting.
    """
    shortage = find_shortage(placed_trial(execution))
    return replace(shortage, is_waiting=shortage.is_waiting and not holds_a_place())
