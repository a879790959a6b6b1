"""Placement of training workers: Ray Train starts group after group of them, and each is placed anew, on the nodes that
are there then.

A group that finds no place within `RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S` is given up by Ray Train, and another one is
asked for. So a choice that nodes have made wrong, by coming or going, lasts no longer than that.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ray
from ray.train import ScalingConfig
from ray.train.v2._internal.execution.callback import ControllerCallback  # for developers, says Ray; exported nowhere

from orchestrator.cluster.nodes import choose_nodes, connected_nodes
from orchestrator.cluster.processes import Processes
from orchestrator.results import MessageEvent


class WorkerPlacement(ControllerCallback):  # type: ignore[misc]
    """Callback in Ray Train's controller that chooses nodes for each group of workers, and tells the driver which.

    Args:
        needed: the workers; how many of them a group has is Ray Train's to say.
        event_queue: the actor to which the choice is told.
    """

    def __init__(self, needed: Processes, allows_head: bool, event_queue: Any) -> None:
        self._needed, self._allows_head, self._event_queue = needed, allows_head, event_queue
        self._told = ""

    def on_controller_start_worker_group(
        self, *, scaling_config: ScalingConfig, num_workers: int
    ) -> Mapping[str, str] | None:
        """Return the selector of labels of the nodes that the next group of workers may be on."""
        chosen = choose_nodes(replace(self._needed, count=num_workers), self._allows_head, connected_nodes())
        ray.get(self._event_queue.place_workers.remote(chosen.selector))
        if chosen.note and chosen.note != self._told:
            ray.get(self._event_queue.put.remote(MessageEvent(chosen.note)))
        self._told = chosen.note
        return chosen.selector or None
