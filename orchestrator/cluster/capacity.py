"""Resources that Ray's nodes have, or an autoscaler may start, compared with what a spec asks; Ray would wait forever.

Ray's tables have the nodes that are up, and what is asked of them; what could be started is known to the autoscaler's
process on the head alone, as the file says that the head was started with. So a function goes there and looks.
"""

import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from orchestrator.cluster.nodes import (
    MARK_OF_THE_HEAD,
    ROUNDING,
    Node,
    Processes,
    connected_nodes,
    room_for,
    select_nodes,
)
from orchestrator.errors import ClusterError, last_line

ACCELERATOR = "ray.io/accelerator-type"
logger = logging.getLogger(__name__)
_ANSWER_TIMEOUT_S = 60.0
_ACCELERATOR_RESOURCE = "accelerator_type:"
"""Beginning of the resource by which Ray's providers tell what GPU a type has."""


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
        Node(_resources(node_type), _labels(node_type))
        for name, node_type in cluster_file.get("available_node_types", {}).items()
        if name != cluster_file.get("head_node_type")
        for _ in range(min(limit, node_type.get("max_workers", limit)))
    ]


def _resources(node_type: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(count) for name, count in node_type.get("resources", {}).items()}


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
    found: dict[str, Any] = ray.get(task, timeout=_ANSWER_TIMEOUT_S)
    return found


def read_cluster_file(gcs_address: str) -> dict[str, Any]:
    """Read, on the head, the file that the autoscaler of the Ray at an address was started with; empty without one."""
    import ray  # brings psutil along

    assert ray.__version__
    import psutil
    import yaml

    port = gcs_address.rpartition(":")[2]
    for process in psutil.process_iter(["cmdline"]):
        options = dict(word.split("=", 1) for word in process.info["cmdline"] or () if "=" in word)
        path = options.get("--autoscaling-config")
        if path and options.get("--gcs-address", "").endswith(f":{port}"):
            return dict(yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8")))
    return {}


MAX_LOGICAL_PER_CORE = 4
"""Processes that may share a core of a local Ray; with more of them each only waits longer for the others."""
CORES = "cores_of_this_machine"
"""Resource of a local Ray, as many as the machine has. It may count more CPUs (`logical_cpus`), for processes that wait
for one another; those that compute from beginning to end ask for cores, too."""


class ClusterRoom(NamedTuple):
    """Numbers of processes that a cluster holds, whatever runs there."""

    now: int
    grown: int
    """The same once its autoscaler has started all nodes that it may."""


def cluster_room(processes: Processes) -> ClusterRoom:
    """Count how many such processes the connected Ray holds."""
    nodes = connected_nodes()
    now = room_for(processes, nodes)
    return ClusterRoom(now, max(now, room_for(processes, grown_cluster(nodes))))


def logical_cpus(needed: float) -> int:
    """CPUs that a local Ray counts: the cores, or as many as are needed, up to `MAX_LOGICAL_PER_CORE` a core."""
    cores = os.cpu_count() or 1
    return max(cores, min(math.ceil(needed), MAX_LOGICAL_PER_CORE * cores))


def share_of_cores(num_cpus: float, nodes: Sequence[Node]) -> dict[str, float]:
    """The cores that a process of so many CPUs asks for; none but on a local Ray."""
    cores = max((node.resources.get(CORES, 0.0) for node in nodes), default=0.0)
    return {CORES: min(num_cpus, cores)} if cores else {}


def has_gpus(needed: Mapping[str, float], have: Mapping[str, float]) -> bool:
    """Whether a place has as many GPUs as are needed."""
    return have.get("GPU", 0.0) >= needed.get("GPU", 0.0)


def decide_gpus(asked: float | Literal["auto"]) -> float:
    """Number of GPUs that a process takes: as many as asked; of `auto` 1 where the connected Ray has one, else 0."""
    return float(has_gpus({"GPU": 1.0}, cluster_resources())) if asked == "auto" else asked


def check_resources(
    needed: Mapping[str, float], have: Mapping[str, float] | None = None, place: str = "the cluster"
) -> None:
    """Compare what is needed in all with what a place has.

    Args:
        have: the connected Ray's resources when left out. An autoscaling cluster counts with the nodes that are up.

    Raises: ClusterError, naming what is missing.
    """
    have = cluster_resources() if have is None else have
    short = [
        f"{_amount(name, count)} asked, {_amount(name, have.get(name, 0.0))} there"
        for name, count in needed.items()
        if count > have.get(name, 0.0) + ROUNDING
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
        select_nodes(processes.labels, [*nodes, *grown])
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


def _amount(name: str, count: float) -> str:
    if "memory" in name:
        return f"{count / (1 << 30):.1f} GiB of {name}"
    return f"{count:g} {name}s" if name in ("CPU", "GPU") and count != 1 else f"{count:g} {name}"
