"""Types of nodes that the connected cluster's autoscaler may start, as the file says that its head was started with.

Ray's tables have the nodes that are up, and what is asked of them; what could be started is known to the autoscaler's
process on the head alone, which is told the file. So a function goes there and looks.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.cluster.nodes import MARK_OF_THE_HEAD, Node, connected_nodes
from orchestrator.errors import last_line

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
