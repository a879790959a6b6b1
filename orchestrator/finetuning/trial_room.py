"""Room for trials: how many of them Tune may have that run, or wait for a process.

Tune asks for one process at a time where it is not told otherwise, and gives that process up as soon as another trial
ends, whose process it uses again. Where trials are shorter than the start of a process, a sweep then never grows beyond
its first one, however many CPUs there are. So Tune may ask for many, and this says how many trials it gets: as many as
fit on the cluster with all nodes that its autoscaler may start, and one more, by which an autoscaler that does not say
what it may start sees that more would run.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from ray import tune

from orchestrator.cluster.capacity import Processes, choose_nodes, cluster_room, connected_nodes, share_of_cores
from orchestrator.specs.sweep import SweepExecutionSpec

_LOOK_EVERY_S = 5.0


class TrialRoom:
    """Trials that Tune has, and whether there is room for another.

    Args:
        count_places: number of trials that the cluster holds, busy or not; asked now and then, as nodes come and go.
    """

    def __init__(self, count_places: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._count_places, self._clock = count_places, clock
        self._num_trials, self._num_places = 0, 0
        self._looked_at: float | None = None

    def has_room(self) -> bool:
        """Whether another trial may be handed out."""
        now = self._clock()
        if self._looked_at is None or now - self._looked_at >= _LOOK_EVERY_S:
            self._num_places, self._looked_at = self._count_places(), now
        return self._num_trials <= self._num_places

    def add(self) -> None:
        """Note that Tune was given another trial."""
        self._num_trials += 1

    def count(self, num_trials: int) -> None:
        """Note how many trials Tune has that run or wait for a process.

        Tune tells its searcher of most ends, but not where a process could not be used again.
        """
        self._num_trials = num_trials


def room_for_trials(execution: SweepExecutionSpec) -> TrialRoom:
    """Room for a sweep's trials on the connected Ray; the number of GPUs of a trial has been decided."""
    return TrialRoom(lambda: cluster_room(placed_trial(execution)).grown)


def trial_group(execution: SweepExecutionSpec) -> tune.PlacementGroupFactory:
    """The placement group that Tune asks for, for a trial that is handed out now."""
    needed = placed_trial(execution)
    selector = {"bundle_label_selector": [dict(needed.labels)]} if needed.labels else {}
    return tune.PlacementGroupFactory([dict(needed.resources)], **selector)


def placed_trial(execution: SweepExecutionSpec) -> Processes:
    """The process of a trial that is handed out now, with the labels of the nodes that it may be on.

    On a local Ray it has its cores to itself: two trials that share one take longer than one after the other.
    """
    needed, nodes = trial_processes(execution), connected_nodes()
    resources = {**needed.resources, **share_of_cores(execution.cpus_per_trial, nodes)}
    return replace(needed, resources=resources, labels=choose_nodes(needed, execution.on_head, nodes).selector)


def trial_processes(execution: SweepExecutionSpec) -> Processes:
    """The process of a trial, as a cluster has to place it; the number of its GPUs has been decided."""
    assert execution.gpus_per_trial != "auto", "the sweep has looked at the cluster"
    gpus = {"GPU": execution.gpus_per_trial} if execution.gpus_per_trial else {}
    return Processes(1, {"CPU": execution.cpus_per_trial} | gpus)
