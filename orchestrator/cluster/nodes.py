"""Nodes of the connected Ray, and which of them training workers may be placed on.

Ray places workers on nodes whose labels a selector takes: by name a value, `!value`, `in(a, b)` or `!in(a, b)`. What a
node is called by itself: `ray.io/accelerator-type` and `ray.io/node-id`; what else by `ray start --labels`.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.cluster.processes import Processes, room_on
from orchestrator.errors import ClusterError

logger = logging.getLogger(__name__)
NODE_ID = "ray.io/node-id"
_MARK_OF_THE_HEAD = "node:__internal_head__"


@dataclass(frozen=True)
class Node:
    """Node of a cluster, alive."""

    resources: Mapping[str, float]
    """Resources by Ray's names: `CPU`, `GPU`, `memory` in bytes, …"""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_head(self) -> bool:
        """Whether the cluster's own services run on this node."""
        return _MARK_OF_THE_HEAD in self.resources


def connected_nodes() -> list[Node]:
    """Nodes of the connected Ray that are alive."""
    import ray

    return [Node(dict(node["Resources"]), dict(node["Labels"])) for node in ray.nodes() if node["Alive"]]


def select_nodes(selector: Mapping[str, str], nodes: Sequence[Node]) -> list[Node]:
    """The nodes that a selector of labels takes. Raises: ClusterError, naming the labels, where it takes none."""
    selected = [node for node in nodes if all(_takes(value, node.labels.get(name)) for name, value in selector.items())]
    if not selected:
        known = sorted({f"{name}: {node.labels[name]}" for node in nodes for name in selector if name in node.labels})
        raise ClusterError(
            f"no node has the labels {_text(selector)} of execution.node_labels; "
            f"{'there are ' + ', '.join(known) if known else 'none has a label of these names'}"
        )
    return selected


def placement_selector(needed: Processes, allows_head: bool, nodes: Sequence[Node]) -> dict[str, str]:
    """The selector of labels for processes: their own, and one that leaves the head out where the others have room.

    The head keeps the cluster together, and beside a training worker it does that late.

    Raises: ClusterError where no node has the labels.
    """
    selected = select_nodes(needed.labels, nodes)
    heads, others = ([node for node in selected if node.is_head is is_head] for is_head in (True, False))
    room = sum(room_on(node.resources, needed.resources) for node in others)
    if allows_head or NODE_ID in needed.labels or not heads or not others:
        return dict(needed.labels)
    if room < needed.count:
        logger.info(f"workers are placed on the head too: the other nodes have room for {room} of {needed.count}")
        return dict(needed.labels)
    return {**needed.labels, NODE_ID: f"!{heads[0].labels[NODE_ID]}"}


def _takes(asked: str, value: str | None) -> bool:
    """Whether a selector's value takes that of a node; a node without the label has none of the values."""
    listed = re.fullmatch(r"!?in\((.*)\)", asked)
    values = re.split(r",\s*", listed[1]) if listed else [asked.removeprefix("!")]
    return (value in values) is not asked.startswith("!")


def _text(selector: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in selector.items())
