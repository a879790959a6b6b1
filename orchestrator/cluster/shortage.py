"""Shortage of a cluster while processes wait for a place: what they need, what is free, who else waits, as a line."""

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.cluster.processes import Processes

_SHOWN = ("CPU", "GPU")
"""Resources that are told of each node; Ray's own markers are none of a person's business."""


def describe_shortage(needed: Processes) -> str:
    """Describe what processes need, and what the connected Ray's nodes have free at this moment."""
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    needs = f"needs {_bundles(needed.count, needed.resources)}"
    try:
        status = get_cluster_status(ray.get_runtime_context().gcs_address)
    except Exception as error:  # an unreachable head raises no narrower class; what is needed is said all the same
        return f"{needs}; the cluster's head does not answer ({type(error).__name__})"
    return f"{needs}; {shortage_text(status)}"


def shortage_text(status: Any) -> str:
    """Free resources by node, demands that wait for a place, and lost nodes, from Ray's `ClusterStatus`."""
    alive = [*status.active_nodes, *status.idle_nodes]
    parts = [f"free now: {', '.join(_free(node) for node in alive) or 'no node is alive'}"]
    demands = status.resource_demands
    waiting = [
        _bundles(one.count, one.bundle)
        for demand in (*demands.placement_group_demand, *demands.ray_task_actor_demand)
        for one in demand.bundles_by_count
    ]
    if waiting:
        parts.append(f"waiting for a place: {', '.join(waiting)}")
    else:
        parts.append("nothing waits for a place: what has one is starting, or is stuck")
    parts.append(f"nodes: {len(alive)} alive")
    if status.pending_nodes or status.pending_launches:
        parts[-1] += f", {len(status.pending_nodes) + len(status.pending_launches)} starting"
    if status.failed_nodes:
        parts[-1] += f", {len(status.failed_nodes)} lost ({_addresses(status.failed_nodes)})"
    return "; ".join(parts)


def _free(node: Any) -> str:
    usage = {use.resource_name: use for use in (node.resource_usage.usage if node.resource_usage else ())}
    amounts = [
        f"{usage[name].total - usage[name].used:g} of {usage[name].total:g} {name}" for name in _SHOWN if name in usage
    ]
    return f"{' and '.join(amounts) or 'nothing'} on {node.ip_address}"


def _addresses(nodes: Iterable[Any]) -> str:
    return ", ".join(sorted({str(node.ip_address) for node in nodes}))


def _bundles(count: int, resources: Mapping[str, float]) -> str:
    """Text of several equal demands: `2 × {CPU: 1}`."""
    return f"{count} × {{{', '.join(f'{name}: {amount:g}' for name, amount in resources.items())}}}"
