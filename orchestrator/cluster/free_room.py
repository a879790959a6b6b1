"""Free room of the connected Ray's nodes for processes of this driver: what nobody holds, or the driver itself does.

What the driver holds is in its placement groups, which it gives back before it takes others.
"""

import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.cluster.nodes import Node, room_for
from orchestrator.cluster.processes import ROUNDING, Processes

_TIMEOUT_S = 5
"""Time within which the cluster's head must answer."""
_ANSWER_TIMEOUT_S = 1.0
_PLACED = ("CREATED", "RESCHEDULING")
"""States of placement groups that hold resources."""


@dataclass(frozen=True)
class FreeRoom:
    """Room of a cluster for one driver's processes at one moment."""

    nodes: list[Node]
    """Nodes that take work, each with the resources that the driver may have there."""
    num_cpus: float
    """CPUs of the cluster in all, without those that processes of other drivers hold."""


def find_free_room() -> FreeRoom:
    """Find the room that the connected Ray has for this driver."""
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    context = ray.get_runtime_context()
    status = get_cluster_status(context.gcs_address, timeout=_TIMEOUT_S)
    ports = {node["NodeID"]: node["NodeManagerPort"] for node in ray.nodes()}
    own, others = held_by(context.get_job_id(), ray.util.placement_group_table())
    nodes = [
        Node(dict(Counter(node.available_resources()) + own.get(node.node_id, Counter())), node.labels)
        for node in (*status.active_nodes, *status.idle_nodes)
        if node.node_status != "DRAINING" and answers(node.ip_address, ports.get(node.node_id, 0))
    ]
    taken = sum(held["CPU"] for held in others.values())
    return FreeRoom(nodes, ray.cluster_resources().get("CPU", 0.0) - taken)


def answers(address: str, port: int) -> bool:
    """Whether a node's Ray takes connections. The cluster's tables have a lost node for some more seconds."""
    try:
        with socket.create_connection((address, port), timeout=_ANSWER_TIMEOUT_S):
            return True
    except OSError:
        return False


def holds_a_place() -> bool:
    """Whether a process of this driver has a place on the connected Ray, be it only starting there."""
    import ray

    own, _ = held_by(ray.get_runtime_context().get_job_id(), ray.util.placement_group_table())
    return bool(own)


def held_by(job_id: str, groups: Mapping[str, Any]) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
    """Resources that placement groups hold, by node: those of one driver, and those of all others.

    Args:
        job_id: Ray's id of the driver.
        groups: Ray's table of all placement groups.
    """
    own: dict[str, Counter[str]] = {}
    others: dict[str, Counter[str]] = {}
    for group_id, group in groups.items():
        # The last part of a placement group's id is the id of the job that made it.
        held = own if group_id.endswith(job_id) else others
        if group["state"] in _PLACED:
            for number, node_id in group["bundles_to_node_id"].items():
                held.setdefault(node_id, Counter()).update(group["bundles"][number])
    return own, others


def count_room(each: Processes, data_cpus: float, room: FreeRoom) -> int:
    """Number of processes that have room, each with a data pipeline somewhere on the cluster.

    Args:
        each: needs of one process; its count is not looked at.
        data_cpus: CPUs of its data pipeline.
    """
    fed = int(room.num_cpus / (each.resources.get("CPU", 0.0) + data_cpus) + ROUNDING)
    return min(fed, room_for(each, room.nodes))
