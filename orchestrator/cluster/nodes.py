"""Nodes of the connected Ray, what is free there, and which of them processes may be placed on. No torch.

Ray places workers on nodes whose labels a selector takes: by name a value, `!value`, `in(a, b)` or `!in(a, b)`. What a
node is called by itself: `ray.io/accelerator-type` and `ray.io/node-id`; what else by `ray start --labels`. Free for a
driver is what nobody holds, or it holds itself in placement groups, which it gives back before it takes others.
"""

import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import ClusterError

ROUNDING = 1e-9
"""Tolerance for sums of fractions of a CPU."""


@dataclass(frozen=True)
class Processes:
    """Processes that run at the same time."""

    count: int
    resources: Mapping[str, float]
    """Resources that each process needs on the one node that it runs on, by Ray's names."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Selector of the labels of the nodes that they may be on."""


def room_on(node: Mapping[str, float], resources: Mapping[str, float]) -> int:
    """Number of processes with these resources that a node holds."""
    return min(int(node.get(name, 0.0) / count + ROUNDING) for name, count in resources.items() if count)


NODE_ID = "ray.io/node-id"
MARK_OF_THE_HEAD = "node:__internal_head__"
"""Resource that the node of the cluster's own services has, and no other."""


@dataclass(frozen=True)
class Node:
    """Node of a cluster, alive."""

    resources: Mapping[str, float]
    """Resources by Ray's names: `CPU`, `GPU`, `memory` in bytes, …"""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_head(self) -> bool:
        """Whether the cluster's own services run on this node."""
        return MARK_OF_THE_HEAD in self.resources


@dataclass(frozen=True)
class Placement:
    """Choice of the nodes for processes that begin together."""

    selector: dict[str, str]
    """Selector of the labels of the nodes that they may be on."""
    note: str = ""
    """Text that tells a person of the choice, where it needs a word."""


def connected_nodes() -> list[Node]:
    """Nodes of the connected Ray that take work: they are alive, and nobody drains them."""
    import ray

    draining = draining_nodes()
    return [
        Node(dict(node["Resources"]), dict(node["Labels"]))
        for node in ray.nodes()
        if node["Alive"] and node["NodeID"] not in draining
    ]


def draining_nodes() -> dict[str, int]:
    """Nodes of the connected Ray that are about to be taken away, by id: Unix time of that in ms, 0 where unknown."""
    from ray._private.state import state  # as Ray Train's own watcher; nothing public tells the time

    return dict(state.get_draining_nodes())


def nodes_with(selector: Mapping[str, str], nodes: Sequence[Node]) -> list[Node]:
    """The nodes that a selector of labels takes."""
    return [node for node in nodes if all(_takes(value, node.labels.get(name)) for name, value in selector.items())]


def select_nodes(selector: Mapping[str, str], nodes: Sequence[Node]) -> list[Node]:
    """The nodes that a selector of labels takes. Raises: ClusterError, naming the labels, where it takes none."""
    selected = nodes_with(selector, nodes)
    if not selected:
        known = sorted({f"{name}: {node.labels[name]}" for node in nodes for name in selector if name in node.labels})
        raise ClusterError(
            f"no node has the labels {_text(selector)} of execution.node_labels; "
            f"{'there are ' + ', '.join(known) if known else 'none has a label of these names'}"
        )
    return selected


def room_for(needed: Processes, nodes: Sequence[Node]) -> int:
    """Number of such processes that these nodes hold; nodes without their labels hold none."""
    return sum(room_on(node.resources, needed.resources) for node in nodes_with(needed.labels, nodes))


def choose_nodes(needed: Processes, allows_head: bool, nodes: Sequence[Node]) -> Placement:
    """Choose nodes for processes: by their own labels, and without the head where the others have room.

    The head keeps the cluster together, and beside a training worker it does that late.

    Args:
        nodes: nodes that take work now; what others use of them is not looked at.
    """
    selected = nodes_with(needed.labels, nodes)
    heads, others = ([node for node in selected if node.is_head is is_head] for is_head in (True, False))
    if allows_head or NODE_ID in needed.labels or not heads or not others:
        return Placement(dict(needed.labels))
    room = room_for(needed, others)
    if room < needed.count:
        note = f"workers are placed on the head too: the other nodes have room for {room} of {needed.count}"
        return Placement(dict(needed.labels), note)
    return Placement({**needed.labels, NODE_ID: f"!{heads[0].labels[NODE_ID]}"})


def selected_text(selector: Mapping[str, str], nodes: Sequence[Node]) -> str:
    """Words on which nodes a selector takes, to follow `any node`: ` with market: spot but the head`; none for all."""
    heads = {f"!{node.labels.get(NODE_ID)}" for node in nodes if node.is_head}
    labels = {name: value for name, value in selector.items() if name != NODE_ID or value not in heads}
    with_labels = f" with {_text(labels)}" if labels else ""
    return with_labels + (" but the head" if len(labels) < len(selector) else "")


def _takes(asked: str, value: str | None) -> bool:
    """Whether a selector's value takes that of a node; a node without the label has none of the values."""
    listed = re.fullmatch(r"!?in\((.*)\)", asked)
    values = re.split(r",\s*", listed[1]) if listed else [asked.removeprefix("!")]
    return (value in values) is not asked.startswith("!")


def _text(selector: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in selector.items())


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
