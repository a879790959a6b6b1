"""Free room of the connected Ray's nodes for processes of this driver: what nobody holds, or the driver itself does.

What the driver holds is in its placement groups, which it gives back before it takes others.
"""

import socket
from collections import Counter
from collections.abc import Mapping
from typing import Any

from orchestrator.cluster.nodes import Node

_TIMEOUT_S = 5
"""Time within which the cluster's head must answer."""
_ANSWER_TIMEOUT_S = 1.0
_PLACED = ("CREATED", "RESCHEDULING")
"""States of placement groups that hold resources."""


def free_nodes() -> list[Node]:
    """Nodes of the connected Ray that take work, each with the resources that this driver may have there."""
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    context = ray.get_runtime_context()
    status = get_cluster_status(context.gcs_address, timeout=_TIMEOUT_S)
    ports = {node["NodeID"]: node["NodeManagerPort"] for node in ray.nodes()}
    own = held_by(context.get_job_id(), ray.util.placement_group_table())
    return [
        Node(dict(Counter(node.available_resources()) + own.get(node.node_id, Counter())), node.labels)
        for node in (*status.active_nodes, *status.idle_nodes)
        if node.node_status != "DRAINING" and answers(node.ip_address, ports.get(node.node_id, 0))
    ]


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

    return bool(held_by(ray.get_runtime_context().get_job_id(), ray.util.placement_group_table()))


def held_by(job_id: str, groups: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """Resources that the placement groups of one driver hold, by node.

    Args:
        job_id: Ray's id of the driver.
        groups: Ray's table of all placement groups.
    """
    held: dict[str, Counter[str]] = {}
    for group_id, group in groups.items():
        # The last part of a placement group's id is the id of the job that made it.
        if group_id.endswith(job_id) and group["state"] in _PLACED:
            for number, node_id in group["bundles_to_node_id"].items():
                held.setdefault(node_id, Counter()).update(group["bundles"][number])
    return held
