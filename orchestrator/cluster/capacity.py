"""Resources of Ray's nodes, compared with what a spec asks; Ray itself would wait forever for what is not there."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from orchestrator.cluster.node_types import cluster_resources, grown_cluster
from orchestrator.cluster.nodes import ROUNDING, Node, Processes, connected_nodes, room_for, select_nodes
from orchestrator.errors import ClusterError

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


def local_resources(num_cpus: float) -> dict[str, float]:
    """Resources that a local Ray would have if it were started for `num_cpus`; none is started."""
    import torch

    return {"CPU": float(logical_cpus(num_cpus)), "GPU": float(torch.cuda.device_count())}


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
