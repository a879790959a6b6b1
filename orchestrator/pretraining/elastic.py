"""Elastic training: Ray Train starts groups of as many workers as there is room for, while nodes come and go.

| what is seen | what follows |
| --- | --- |
| room for fewer workers than the fewest | Ray asks the autoscaler for the most, and waits; a line says so |
| room for enough of them | a group of as many as have room, up to the most |
| a worker or its node is lost | a new group, from the last checkpoint, of as many as have room then |
| room for more than a group has | the group saves a checkpoint and leaves; a larger one goes on from there |
| room for fewer than a group has | nothing: what it holds is its own |

Ray Train's own policy asks for nodes, and says when to look. Ray 2.60 would count what nodes have in all, the share of
others and nodes that no worker may be on included, leave no CPU to data pipelines, and end a group in the middle of a
step (read in its source; seen in part: lab log). So a class that is made of that policy counts, and lets a group save
what it has done.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.execution.scaling_policy import (
    ElasticScalingPolicy,
    NoopDecision,
    ResizeDecision,
    ScalingDecision,
)

from orchestrator.cluster.free_room import count_room, find_free_room
from orchestrator.cluster.processes import Processes
from orchestrator.results import MessageEvent

SETTLING_S = 5.0
"""Time in which the cluster learns what has just become free; only then a group begins with fewer than the most."""
_POLL_S = 0.5


class RoomPolicy(ElasticScalingPolicy):  # type: ignore[misc]
    """Policy that counts the room which is free, and changes a group's size at a checkpoint.

    Args:
        find_selector: returns the selector of labels of the nodes that the next workers may be on.
        data_cpus: CPUs of each worker's data pipeline.
        event_queue: the actor by which workers are asked to save and leave.
    """

    def __init__(
        self,
        scaling_config: ray.train.ScalingConfig,
        find_selector: Callable[[], Mapping[str, str]],
        data_cpus: float,
        event_queue: Any,
    ) -> None:
        super().__init__(scaling_config)
        self._find_selector, self._data_cpus, self._queue = find_selector, data_cpus, event_queue
        self._waits_since: float | None = None
        self._has_told = False
        self._next: ResizeDecision | None = None

    def make_decision_for_non_running_worker_group(self) -> ScalingDecision:
        """Begin with a group of as many workers as have room."""
        now = time.monotonic()
        self._next = None
        if self._waits_since is None:
            self._waits_since, self._has_told = now, False
        decision = super().make_decision_for_non_running_worker_group()
        is_settled = now - self._waits_since > SETTLING_S
        if isinstance(decision, ResizeDecision) and (
            is_settled or decision.num_workers == self.scaling_config.max_workers
        ):
            return decision
        if is_settled and not self._has_told:
            self._has_told = True
            fewest, most = self.scaling_config.min_workers, self.scaling_config.max_workers
            text = f"waiting for room for {fewest} workers, the fewest of this run; nodes for {most} are asked for"
            ray.get(self._queue.put.remote(MessageEvent(text, "warning")))
        time.sleep(_POLL_S)  # Ray asks again at once
        return NoopDecision()

    def make_decision_for_running_worker_group(
        self, worker_group_state: Any, worker_group_status: Any
    ) -> ScalingDecision:
        """Let a group go on, or take a larger one once it has saved a checkpoint and left."""
        self._waits_since = None
        if self._next is None:
            decision = super().make_decision_for_running_worker_group(worker_group_state, worker_group_status)
            grows = isinstance(decision, ResizeDecision) and decision.num_workers > worker_group_state.num_workers
            if grows and ray.get(self._queue.pause.remote()):
                self._next = decision
        elif ray.get(self._queue.has_paused.remote()):
            decision, self._next = self._next, None
            ray.get(self._queue.go_on.remote())
            return decision
        return NoopDecision()

    def _count_possible_workers(self, reserved_resources: object) -> int:
        config = self.scaling_config
        try:
            each = Processes(1, config._resources_per_worker_not_none, self._find_selector())
            room = count_room(each, self._data_cpus, find_free_room())
        except Exception:  # a head that does not answer raises no narrower class; a group must not end by that
            return 0
        return min(room, int(config.max_workers))


class ElasticTrainer(TorchTrainer):  # type: ignore[misc]
    """Trainer whose groups are as large as `policy` says; Ray Train itself knows two policies and takes no other."""

    policy: RoomPolicy

    def _initialize_and_run_controller(self, **arguments: Any) -> ray.train.Result:
        return super()._initialize_and_run_controller(**{**arguments, "scaling_policy": self.policy})
