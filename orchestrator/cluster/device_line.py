"""Devices that work takes where its spec leaves them to the cluster, and the line that says which and why."""

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from orchestrator.cluster.capacity import decide_gpus
from orchestrator.cluster.card_look import find_refusal
from orchestrator.cluster.node_types import cluster_resources, gpu_types

logger = logging.getLogger(__name__)


def device_line(work: str, num_gpus: float, num_there: float, types: Sequence[str] = ()) -> str:
    """Return the line for work on a cluster.

    >>> device_line("training", 2.0, 8.0, ["H200"])
    'training on 2 GPUs (H200)'
    >>> device_line("training", 0.0, 0.0)
    'training on the CPU: the cluster has no GPU'

    Args:
        work: what is done: `training`, `each trial trains`.
        num_gpus: GPUs that it takes; a fraction is a share of one.
        num_there: GPUs of the cluster.
        types: types of the cluster's GPUs, by Ray's names.
    """
    if not num_gpus:
        reason = f"the cluster has {num_there:g} GPUs, which are too few" if num_there else "the cluster has no GPU"
        return f"{work} on the CPU: {reason}"
    named = f" ({' or '.join(types)})" if types else ""
    count = f"{num_gpus:g} of a GPU" if num_gpus < 1 else f"{num_gpus:g} {'GPU' if num_gpus == 1 else 'GPUs'}"
    return f"{work} on {count}{named}"


def tell_device(work: str, num_gpus: float, asked: object) -> None:
    """Log on which devices work runs on the connected Ray, where `asked`, of a spec, left that to the cluster."""
    if asked == "auto":
        types = gpu_types() if num_gpus else ()
        logger.info(device_line(work, num_gpus, cluster_resources().get("GPU", 0.0), types))


def take_gpus(work: str, asked: float | Literal["auto"]) -> float:
    """Decide how many GPUs a process takes of the connected Ray, and log what `auto` took.

    `auto` takes the CPU where torch can use none of the GPUs, and says why; a number of GPUs stays as it is asked.
    """
    gpus = decide_gpus(asked)
    if asked == "auto" and gpus and refuses_gpus(work):
        return 0.0
    tell_device(work, gpus, asked)
    return gpus


def refuses_gpus(work: str, labels: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Look at the GPUs of the connected Ray; where torch can use none, log that work is done on the CPU, and why.

    Args:
        labels: selector of the nodes that the work may be on.
    """
    refusal = find_refusal(labels)
    if refusal is not None:
        logger.warning(f"{work} on the CPU: {refusal}")
    return refusal is not None
