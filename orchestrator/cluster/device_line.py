"""Devices that work takes where its spec leaves them to the cluster, and the line that says which and why.

Ray counts GPUs by their driver, and torch may find none usable: the driver looks at them before `auto` takes them, once
for all processes of a run, so that all of them are on GPUs or none is.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from orchestrator.cluster.capacity import NODE_ID, cluster_resources, free_nodes, gpu_types, has_gpus, nodes_with
from orchestrator.errors import ClusterError
from orchestrator.progress import UNDER_WAY

_SHARE = 0.001
"""GPUs of the task that looks at a node's: Ray gives it one, and leaves room for the work itself."""
_ANSWER_TIMEOUT_S = 60.0
_USABLE: set[str] = set()
"""Nodes with a GPU that has computed. A refusal is not kept: what was in the way, as another's memory, may be gone."""


def find_refusal(labels: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """Return why torch can use no free GPU of the connected Ray, with what to do; None where one can be used.

    One GPU of each node is looked at, until one is usable. A node that does not answer in time, or fails, counts as
    usable: work on it has its own watch, which says what is wrong there. So do GPUs that are all taken: others compute
    on them.

    Args:
        labels: selector of the nodes that the work may be on.
    """
    import ray

    if not ray.cluster_resources().get("GPU"):
        return None
    nodes = [node for node in nodes_with(labels, free_nodes()) if node.resources.get("GPU", 0.0) >= _SHARE]
    node_ids = {node.labels[NODE_ID] for node in nodes}
    if not node_ids or node_ids & _USABLE:
        return None
    logger.info("looking at the GPUs", extra=UNDER_WAY)
    looks, refusals = {_begin_look(node_id): node_id for node_id in sorted(node_ids)}, list[str | None]()
    pending, end_at = list(looks), time.monotonic() + _ANSWER_TIMEOUT_S
    while pending and None not in refusals:
        done, pending = ray.wait(pending, timeout=max(0.0, end_at - time.monotonic()))
        try:
            refusals.append(ray.get(done[0]) if done else None)
        except ray.exceptions.RayError as error:
            logger.debug(f"a look at a GPU has failed: {error}")
            refusals.append(None)
        else:
            _USABLE.update(looks[look] for look in done if refusals[-1] is None)
    for look in pending:
        ray.cancel(look, force=True)
    return common_refusal(refusals)


def common_refusal(refusals: Sequence[str | None]) -> str | None:
    """Return the first of the nodes' refusals where all nodes refuse, with their number where that is several.

    >>> common_refusal(["the driver is too old", None])
    >>> common_refusal(["the driver is too old", "the driver is too old"])
    'the driver is too old (and so on all 2 nodes with GPUs)'
    """
    if not refusals or None in refusals:
        return None
    everywhere = f" (and so on all {len(refusals)} nodes with GPUs)" if len(refusals) > 1 else ""
    return f"{refusals[0]}{everywhere}"


def look_at_card() -> str | None:
    """Return why torch cannot use this process's card, or None."""
    from orchestrator.training.cards import find_card

    try:
        find_card()
    except ClusterError as error:
        return str(error)
    return None


def _begin_look(node_id: str) -> "ray.ObjectRef[str | None]":  # type: ignore[name-defined]  # noqa: F821
    """Begin the task that looks at a node's card; its process ends with it, and gives the card's memory back."""
    import ray

    selector = {NODE_ID: node_id}
    return ray.remote(num_cpus=0, num_gpus=_SHARE, max_calls=1, label_selector=selector)(look_at_card).remote()


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
    gpus = float(has_gpus({"GPU": 1.0}, cluster_resources())) if asked == "auto" else asked
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
