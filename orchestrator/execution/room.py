"""Room for a spec: whether this machine, or the cluster, has the CPUs, GPUs and disk that it takes."""

import logging
from collections.abc import Mapping, Sequence

from orchestrator.cluster.capacity import Node, check_processes, check_resources, cluster_resources, logical_cpus
from orchestrator.cluster.connection import connect, names_no_cluster
from orchestrator.execution.refusals import check_places
from orchestrator.kinds.resolved import Resolved
from orchestrator.planning.disk import check_disk
from orchestrator.planning.plan import needed_resources, unused_gpu_notes
from orchestrator.settings import Settings
from orchestrator.specs import Spec

logger = logging.getLogger(__name__)


def check_room(spec: Spec, inputs: Resolved, left: Sequence[str] = ()) -> None:
    """Check that the storage, and the cluster that the settings name or else this machine, have room for a spec.

    No local Ray is started.

    Args:
        left: folders of earlier attempts at the run.

    Raises: InputError for a disk that is too small or cannot be written; ClusterError, naming what is missing.
    """
    settings = inputs.settings
    check_places(settings)
    check_disk(spec, inputs, left)
    if names_no_cluster(settings):
        import torch

        here = {"CPU": float(logical_cpus(needed_cpus(spec))), "GPU": float(torch.cuda.device_count())}
        check_connected_room(spec, settings, here, [Node(here)])
        _say_unused_gpus(spec, here)
        return
    with connect(settings):
        check_connected_room(spec, settings)
        _say_unused_gpus(spec, cluster_resources())


def _say_unused_gpus(spec: Spec, have: Mapping[str, float]) -> None:
    for note in unused_gpu_notes(spec, have):
        logger.warning(note)


def needed_cpus(spec: Spec) -> float:
    """CPUs that a spec takes, wherever it runs."""
    return needed_resources(spec, {}).total.get("CPU", 0.0)


def check_connected_room(
    spec: Spec,
    settings: Settings,
    have: Mapping[str, float] | None = None,
    nodes: Sequence[Node] | None = None,
) -> None:
    """Check that the connected Ray, or a machine of other resources, has room for a spec; its disk apart.

    Args:
        have: resources by name, of all nodes together; the connected Ray's when left out.
        nodes: its nodes; those of the connected Ray when left out.

    Raises: ClusterError, naming what is missing.
    """
    place = "this machine" if names_no_cluster(settings) else "the cluster"
    have = cluster_resources() if have is None else have
    needs = needed_resources(spec, have)
    check_resources(needs.total, have, place)
    check_processes(needs.processes, nodes, place)
