"""Nodes of the connected Ray: what they have, what is free there, and which of them hold processes. No torch.

Ray places processes on nodes whose labels a selector takes: by name a value, `!value`, `in(a, b)` or `!in(a, b)`. Each
node has `ray.io/accelerator-type` and `ray.io/node-id`, and what else `ray start --labels` gave it. Where only the sum
over the nodes has room, Ray would wait forever, so that is compared before.

Ray's tables have the nodes that are up, and what is asked of them; what could be started is known to the autoscaler's
process on the head alone, as the file says that the head was started with. So a function goes there and looks.
"""

import logging
import math
import os
import re
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import yaml

from orchestrator.base.errors import ClusterError
from orchestrator.cluster.own_errors import last_line

logger = logging.getLogger(__name__)
ACCELERATOR = "ray.io/accelerator-type"
NODE_ID = "ray.io/node-id"
MARK_OF_THE_HEAD = "node:__internal_head__"
"""Resource that the node of the cluster's own services has, and no other."""
_ACCELERATOR_RESOURCE = "accelerator_type:"
"""Beginning of the resource by which Ray's providers tell what GPU a type has."""
CORES = "cores_of_this_machine"
"""Resource of a local Ray, as many as the machine has. It may count more CPUs (`logical_cpus`), for processes that wait
for one another; those that compute from beginning to end ask for cores, too."""
MAX_LOGICAL_PER_CORE = 4
"""Processes that may share a core of a local Ray; with more of them each only waits longer for the others."""
_ROUNDING = 1e-9
"""Tolerance for sums of fractions of a CPU."""
_HEAD_TIMEOUT_S = 5
_FILE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Processes:
    """Processes that run at the same time."""

    count: int
    resources: Mapping[str, float]
    """Resources that each process needs on the one node that it runs on, by Ray's names."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Selector of the labels of the nodes that they may be on."""


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


def room_for(needed: Processes, nodes: Sequence[Node]) -> int:
    """Number of such processes that these nodes hold; nodes without their labels hold none."""
    asked = [(name, count) for name, count in needed.resources.items() if count]
    return sum(
        min(int(node.resources.get(name, 0.0) / count + _ROUNDING) for name, count in asked)
        for node in nodes_with(needed.labels, nodes)
    )


def choose_nodes(needed: Processes, allows_head: bool, nodes: Sequence[Node]) -> dict[str, str]:
    """Selector of the nodes for processes that begin together: by their own labels, and without the head where the
    others have room. The head keeps the cluster together, and beside a training worker it does that late.

    Args:
        nodes: nodes that take work now; what others use of them is not looked at.
    """
    selected = nodes_with(needed.labels, nodes)
    heads, others = ([node for node in selected if node.is_head is is_head] for is_head in (True, False))
    if allows_head or NODE_ID in needed.labels or not heads or room_for(needed, others) < needed.count:
        return dict(needed.labels)
    return {**needed.labels, NODE_ID: f"!{heads[0].labels[NODE_ID]}"}


def _takes(asked: str, value: str | None) -> bool:
    """Whether a selector's value takes that of a node; a node without the label has none of the values."""
    listed = re.fullmatch(r"!?in\((.*)\)", asked)
    values = re.split(r",\s*", listed[1]) if listed else [asked.removeprefix("!")]
    return (value in values) is not asked.startswith("!")


def free_nodes() -> list[Node]:
    """Nodes of the connected Ray that take work, each with the resources that this driver may have there.

    Those are what nobody holds, and what its own placement groups hold, which it gives back before it takes others.
    """
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    context = ray.get_runtime_context()
    status = get_cluster_status(context.gcs_address, timeout=_HEAD_TIMEOUT_S)
    ports = {node["NodeID"]: node["NodeManagerPort"] for node in ray.nodes()}
    own = held_by(context.get_job_id(), ray.util.placement_group_table())
    return [
        Node(dict(Counter(node.available_resources()) + own.get(node.node_id, Counter())), node.labels)
        for node in (*status.active_nodes, *status.idle_nodes)
        if node.node_status != "DRAINING" and answers(node.ip_address, ports.get(node.node_id, 0))
    ]


def answers(address: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether a node's Ray takes connections. The cluster's tables have a lost node for some more seconds."""
    try:
        with socket.create_connection((address, port), timeout=timeout_s):
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
        if group_id.endswith(job_id) and group["state"] in ("CREATED", "RESCHEDULING"):
            for number, node_id in group["bundles_to_node_id"].items():
                held.setdefault(node_id, Counter()).update(group["bundles"][number])
    return held


def cluster_resources() -> dict[str, float]:
    """Resources of the connected Ray in all, by name: `CPU`, `GPU`, `memory` in bytes, …

    A cluster with an autoscaler has of each what it has now, or what it has with all nodes that may be started.
    """
    import ray

    now, grown = ray.cluster_resources(), grown_cluster(connected_nodes())
    names = {name for node in grown for name in node.resources} | set(now)
    return {name: max(now.get(name, 0.0), sum(node.resources.get(name, 0.0) for node in grown)) for name in names}


def gpu_types() -> list[str]:
    """Types of the GPUs of the connected Ray's nodes, by Ray's names, sorted."""
    nodes = connected_nodes()
    return sorted(
        {node.labels[ACCELERATOR] for node in nodes if ACCELERATOR in node.labels and node.resources.get("GPU")}
    )


def grown_cluster(nodes: Sequence[Node]) -> list[Node]:
    """Nodes of the connected cluster, of which these are up, once its autoscaler has started all that it may.

    None where there is no autoscaler.
    """
    startable = startable_nodes()
    # Of the nodes that are up, all but the head are of a type that is counted whole.
    return [*(node for node in nodes if node.is_head), *startable] if startable else []


def startable_nodes() -> list[Node]:
    """Nodes that the connected cluster's autoscaler may have up at the same time; none where there is no autoscaler."""
    import ray

    try:
        return nodes_of(_cluster_file(ray.get_runtime_context().gcs_address))
    except (ray.exceptions.RayError, OSError) as error:
        logger.warning(f"what nodes the cluster may start is not known: its head does not say ({last_line(error)})")
        return []


def nodes_of(cluster_file: Mapping[str, Any]) -> list[Node]:
    """The most nodes of each type, the head left out, that a cluster file allows; those of several types share a limit,
    which is not looked at."""
    limit = cluster_file.get("max_workers", 0)
    return [
        Node({name: float(count) for name, count in node_type.get("resources", {}).items()}, _labels(node_type))
        for name, node_type in cluster_file.get("available_node_types", {}).items()
        if name != cluster_file.get("head_node_type")
        for _ in range(min(limit, node_type.get("max_workers", limit)))
    ]


def _labels(node_type: Mapping[str, Any]) -> dict[str, str]:
    """Labels of a type: those that its file gives it, and the accelerator that Ray's raylet will find."""
    labels = dict(node_type.get("labels", {}))
    for name in node_type.get("resources", {}):
        if name.startswith(_ACCELERATOR_RESOURCE):
            labels.setdefault(ACCELERATOR, name.removeprefix(_ACCELERATOR_RESOURCE))
    return labels


@cache
def _cluster_file(gcs_address: str) -> dict[str, Any]:
    """The file of the connected cluster, by way of its head; empty where there is none, or no answer comes."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    if any(node["NodeID"] == here and MARK_OF_THE_HEAD in node["Resources"] for node in ray.nodes()):
        return read_cluster_file(gcs_address)
    # Pinned by the head's own resource, which takes no CPU: clusters give their heads none.
    task = ray.remote(num_cpus=0, resources={MARK_OF_THE_HEAD: 0.001})(read_cluster_file).remote(gcs_address)
    found: dict[str, Any] = ray.get(task, timeout=_FILE_TIMEOUT_S)
    return found


def read_cluster_file(gcs_address: str) -> dict[str, Any]:
    """Read, on the head, the file that the autoscaler of the Ray at an address was started with; empty without one."""
    port = gcs_address.rpartition(":")[2]
    for process in psutil.process_iter(["cmdline"]):
        options = dict(word.split("=", 1) for word in process.info["cmdline"] or () if "=" in word)
        path = options.get("--autoscaling-config")
        if path and options.get("--gcs-address", "").endswith(f":{port}"):
            return dict(yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8")))
    return {}


def cluster_room(processes: Processes) -> int:
    """Number of such processes that the connected Ray holds, once its autoscaler has started all that it may."""
    nodes = connected_nodes()
    return max(room_for(processes, nodes), room_for(processes, grown_cluster(nodes)))


def logical_cpus(needed: float) -> int:
    """CPUs that a local Ray counts: the cores, or as many as are needed, up to `MAX_LOGICAL_PER_CORE` a core."""
    cores = os.cpu_count() or 1
    return max(cores, min(math.ceil(needed), MAX_LOGICAL_PER_CORE * cores))


def share_of_cores(num_cpus: float, nodes: Sequence[Node]) -> dict[str, float]:
    """The cores that a process of so many CPUs asks for; none but on a local Ray."""
    cores = max((node.resources.get(CORES, 0.0) for node in nodes), default=0.0)
    return {CORES: min(num_cpus, cores)} if cores else {}


def check_resources(needed: Mapping[str, float], have: Mapping[str, float], place: str = "the cluster") -> None:
    """Compare what is needed in all with what a place has. Raises: ClusterError, naming what is missing."""
    short = [
        f"{_amount(name, count)} asked, {_amount(name, have.get(name, 0.0))} there"
        for name, count in needed.items()
        if count > have.get(name, 0.0) + _ROUNDING
    ]
    if short:
        raise ClusterError(
            f"{place} cannot give what this needs: {'; '.join(short)}. "
            "Lower it in the spec's `execution`, or use a larger cluster with --address"
        )


def check_processes(
    needed: Iterable[Processes], nodes: Sequence[Node] | None = None, place: str = "the cluster"
) -> None:
    """Check that the nodes have room for processes; Ray waits forever where only the sum over the nodes is enough.

    Args:
        nodes: when left out, the connected Ray's nodes, beside those that its autoscaler may start.

    Raises: ClusterError, naming the processes that find no room, or the labels that no node has.
    """
    grown: Sequence[Node] = ()
    if nodes is None:
        nodes = connected_nodes()
        grown = grown_cluster(nodes)
    for processes in needed:
        if not nodes_with(processes.labels, [*nodes, *grown]):
            raise ClusterError(_no_node_text(processes.labels, [*nodes, *grown]))
        room = max(room_for(processes, nodes), room_for(processes, grown))
        if room < processes.count:
            asked = "1 process is asked" if processes.count == 1 else f"{processes.count} processes are asked, each"
            each = " and ".join(_amount(name, count) for name, count in processes.resources.items())
            raise ClusterError(
                f"{asked} with {each} on one node; {place} has room for {room}"
                f"{', with all nodes that its autoscaler may start' if grown else ''}. Lower execution.num_workers or "
                "execution.cpus_per_worker (a sweep: cpus_per_trial, gpus_per_trial; an evaluation: gpus), "
                "or use larger nodes"
            )


def _no_node_text(selector: Mapping[str, str], nodes: Sequence[Node]) -> str:
    known = sorted({f"{name}: {node.labels[name]}" for node in nodes for name in selector if name in node.labels})
    return (
        f"no node has the labels {', '.join(f'{name}: {value}' for name, value in selector.items())} of "
        f"execution.node_labels; {'there are ' + ', '.join(known) if known else 'none has a label of these names'}"
    )


def _amount(name: str, count: float) -> str:
    if "memory" in name:
        return f"{count / (1 << 30):.1f} GiB of {name}"
    return f"{count:g} {name}s" if name in ("CPU", "GPU") and count != 1 else f"{count:g} {name}"
