"""Shortage of a cluster while processes wait for a place: what they need, what is free, who else waits, what starts.

A driver that waits for tasks says it (`warn_when_stalled`): within seconds where they have no place, within a minute
where they bring nothing. Ray Data waits for resources that others hold for ever, and says nothing.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from orchestrator.base.console import duration
from orchestrator.base.periodic import Reminders, Shortage, repeating
from orchestrator.cluster.capacity import NODE_ID, Processes

logger = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0
_TIMEOUT_S = 5
"""Time within which the cluster's head must answer: whoever asks does nothing else meanwhile."""
_SHOWN = ("CPU", "GPU")
"""Resources that are told of each node; Ray's own markers are none of a person's business."""


def find_shortage(needed: Processes) -> Shortage:
    """Compare what processes need with what the connected Ray's nodes have free at this moment."""
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    context = ray.get_runtime_context()
    try:
        status = get_cluster_status(context.gcs_address, timeout=_TIMEOUT_S)
        first_autoscaler = _report_of_first_autoscaler()
    except Exception as error:  # an unreachable head raises no narrower class; what is needed is said all the same
        silent = f"the cluster's head does not answer ({type(error).__name__})"
        return Shortage(False, f"needs {_needed(needed)}; {silent}")
    return shortage_of(needed, status, context.get_job_id(), first_autoscaler)


def _report_of_first_autoscaler() -> Mapping[str, Any]:
    """Report of version 1 of Ray's autoscaler, beside the cluster's status; empty where another version runs."""
    from ray.experimental.internal_kv import _internal_kv_get  # version 1 says nowhere else what it starts

    text = _internal_kv_get(b"__autoscaling_status")  # as `ray status` does
    report: Mapping[str, Any] = json.loads(text).get("autoscaler_report") or {} if text else {}
    return report


def shortage_of(
    needed: Processes, status: Any, job_id: str = "", first_autoscaler: Mapping[str, Any] | None = None
) -> Shortage:
    """Compare what processes need with Ray's `ClusterStatus`.

    Args:
        job_id: Ray's id of the driver, by which its own placement groups are told from those of other drivers.
        first_autoscaler: report of version 1 of Ray's autoscaler, which leaves starting nodes out of the status.
    """
    starting = _starting(status, first_autoscaler or {})
    text = f"needs {_needed(needed)}; {shortage_text(status)}"
    text += f"; autoscaler: starting {starting}" if starting else "; no node is starting"
    return Shortage(_is_waiting(needed, status, job_id), text)


def _needed(needed: Processes) -> str:
    labels = ", ".join(f"{name}: {value}" for name, value in needed.labels.items() if name != NODE_ID)
    return _bundles(needed.count, needed.resources) + (f" on nodes with {labels}" if labels else "")


def _is_waiting(needed: Processes, status: Any, job_id: str) -> bool:
    """Whether one of the driver's placement groups, or a task or actor of such a shape, has no place."""
    demands = status.resource_demands
    # The last part of a placement group's id is the id of the job that made it.
    if job_id and any((group.pg_id or "").endswith(job_id) for group in demands.placement_group_demand):
        return True
    shape = {name: amount for name, amount in needed.resources.items() if amount}
    return any(
        {name: amount for name, amount in one.bundle.items() if amount} == shape
        for demand in demands.ray_task_actor_demand
        for one in demand.bundles_by_count
    )


def _starting(status: Any, first_autoscaler: Mapping[str, Any]) -> str:
    """Nodes that the autoscaler is starting, by its names of their types: `2 × gpu`; nothing where it starts none."""
    types: Counter[str] = Counter(node.ray_node_type_name for node in status.pending_nodes)
    for launch in status.pending_launches:
        types[launch.ray_node_type_name] += launch.count
    types.update(node_type for _, node_type, *_ in first_autoscaler.get("pending_nodes") or ())
    types.update(first_autoscaler.get("pending_launches") or {})
    return ", ".join(f"{count} × {name}" for name, count in sorted(types.items()))


def shortage_text(status: Any) -> str:
    """Free resources by node, demands that wait for a place, and lost nodes, from Ray's `ClusterStatus`."""
    alive = (*status.active_nodes, *status.idle_nodes)
    parts = [f"free now: {', '.join(_free(node) for node in alive) or 'no node is alive'}"]
    demands = status.resource_demands
    waiting = [
        _bundles(one.count, one.bundle)
        for demand in (*demands.placement_group_demand, *demands.ray_task_actor_demand)
        for one in demand.bundles_by_count
    ]
    nothing = "nothing waits for a place: what has one is starting, or is stuck"
    parts.append(f"waiting for a place: {', '.join(waiting)}" if waiting else nothing)
    parts.append(f"nodes: {len(alive)} alive")
    if status.failed_nodes:
        lost = ", ".join(sorted({str(node.ip_address) for node in status.failed_nodes}))
        parts[-1] += f", {len(status.failed_nodes)} lost ({lost})"
    return "; ".join(parts)


def _free(node: Any) -> str:
    free, total = node.available_resources(), node.total_resources()
    amounts = [f"{free[name]:g} of {total[name]:g} {name}" for name in _SHOWN if name in total]
    drained = ", which is being drained" if node.node_status == "DRAINING" else ""
    return f"{' and '.join(amounts) or 'nothing'} on {node.ip_address}{drained}"


def _bundles(count: int, resources: Mapping[str, float]) -> str:
    """Text of several equal demands: `2 × {CPU: 1}`."""
    return f"{count} × {{{', '.join(f'{name}: {amount:g}' for name, amount in resources.items())}}}"


class StallWatch:
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
        self._reminders.reset()

    def look(self) -> None:
        """Say what is missing where nothing has come for long; ever more rarely while that lasts."""
        waited_s = self._clock() - self._since
        problem = f"{self._problem} for {duration(waited_s)}"
        self._reminders.look(waited_s, problem, logger, has_begun=self._has_begun)


@contextmanager
def warn_when_stalled(problem: str, needed: Processes) -> Iterator[StallWatch]:
    """Yield a watch that a thread looks at until the end of the block, for work on the connected Ray."""
    watch = StallWatch(problem, lambda: find_shortage(needed))

    def look() -> bool:
        watch.look()
        return True

    with repeating(look, _LOOK_EVERY_S, "silence", join_timeout_s=0.0):  # a look may wait for the cluster's head
        yield watch
