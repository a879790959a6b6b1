"""Devices for work: the GPUs that `auto` takes, units for bf16, and a function called where its GPUs are.

Ray counts GPUs by their driver, and torch may find none usable: the driver looks at them before `auto` takes them, once
for all processes of a run, so that all of them are on GPUs or none is.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from orchestrator.base.console import UNDER_WAY, attached
from orchestrator.base.errors import ClusterError, RunFailedError
from orchestrator.cluster.capacity import (
    ACCELERATOR,
    NODE_ID,
    Processes,
    cluster_resources,
    connected_nodes,
    free_nodes,
    gpu_types,
    nodes_with,
    startable_nodes,
)
from orchestrator.cluster.own_errors import OWN_ERRORS, OwnError, last_line
from orchestrator.cluster.process_warnings import CollectedWarnings
from orchestrator.cluster.shortage import warn_when_stalled

T = TypeVar("T")
logger = logging.getLogger(__name__)
_SHARE = 0.001
"""GPUs of the task that looks at a node's: Ray gives it one, and leaves room for the work itself."""
_ANSWER_TIMEOUT_S = 60.0
_TYPES_WITHOUT_BF16 = {"K80", "P4", "P100", "V100", "T4"}
"""Types of GPUs from before Ampere, by Ray's names."""
_USABLE: dict[str, "Look"] = {}
"""Looks at nodes with a GPU that has computed. A refusal is not kept: what was in the way, as another's memory, may be
gone."""


def take_gpus(work: str, asked: float | Literal["auto"]) -> float:
    """Decide how many GPUs a process takes of the connected Ray, and log what `auto` took.

    `auto` takes the CPU where torch can use none of the GPUs, and says why; a number of GPUs stays as it is asked.
    """
    if asked != "auto":
        return asked
    gpus = float(cluster_resources().get("GPU", 0.0) >= 1.0)
    if gpus and are_gpus_unusable(work):
        return 0.0
    log_device(work, gpus)
    return gpus


def are_gpus_unusable(work: str, labels: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Whether torch can use no GPU of the nodes with these labels; then a warning says so, and why."""
    refusal = find_gpu_problem(labels)
    if refusal is not None:
        logger.warning(f"{work} on the CPU: {refusal}")
    return refusal is not None


def log_device(work: str, num_gpus: float) -> None:
    """Log on which devices of the connected Ray work runs whose spec left that to the cluster."""
    if num_gpus:
        logger.info(f"{work} on {num_gpus:g} × {' or '.join(gpu_types()) or 'GPU'}")
    else:
        logger.info(f"{work} on the CPU: the cluster has {cluster_resources().get('GPU', 0.0):g} GPUs")


class Look(NamedTuple):
    """Findings of a process with a GPU of its node."""

    problem: str | None = None
    """Reason why torch cannot use the GPU, with what to do; None where it can."""
    has_bf16: bool = True
    """Whether the GPU has units for bf16."""


def find_gpu_problem(labels: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """Return why torch can use no free GPU of the connected Ray, with what to do; None where one can be used.

    One GPU of each node is looked at.

    Args:
        labels: selector of the nodes that the work may be on.
    """
    problems = [look.problem for look in _look_at_gpus(labels)]
    return problems[0] if problems and None not in problems else None


def have_bf16(*, on_gpus: bool, labels: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Whether all GPUs, or all CPUs, of the connected Ray have units for bf16.

    GPUs that are all taken, or not started yet, are known by Ray's name of their type. A node that does not answer
    counts as having the units.

    Args:
        labels: selector of the nodes that the work may be on.
    """
    nodes = nodes_with(labels, connected_nodes())
    if on_gpus:
        types = {node.labels.get(ACCELERATOR) for node in (*nodes, *startable_nodes()) if node.resources.get("GPU")}
        return not types & _TYPES_WITHOUT_BF16 and all(look.has_bf16 for look in _look_at_gpus(labels))
    import ray

    from orchestrator.cluster.torch_devices import has_bf16_cpu

    asked, own = {node.labels[NODE_ID] for node in nodes}, ray.get_runtime_context().get_node_id()
    answers = _ask_nodes(has_bf16_cpu, asked - {own})
    return (own not in asked or has_bf16_cpu()) and False not in answers.values()


def _look_at_gpus(labels: Mapping[str, str]) -> list[Look]:
    """Look at a free GPU of each node of the connected Ray.

    A node that does not answer in time, or fails, counts as usable: work on it has its own watch, which says what is
    wrong there. So do GPUs that are all taken: others compute on them.
    """
    import ray

    if not ray.cluster_resources().get("GPU"):
        return []
    nodes = [node for node in nodes_with(labels, free_nodes()) if node.resources.get("GPU", 0.0) >= _SHARE]
    node_ids = {node.labels[NODE_ID] for node in nodes}
    looks = {node_id: _USABLE[node_id] for node_id in node_ids & _USABLE.keys()}
    if new := node_ids - looks.keys():
        logger.info("looking at the GPUs", extra=UNDER_WAY)
        found = {node_id: look for node_id, look in _ask_nodes(look_at_card, new, num_gpus=_SHARE).items() if look}
        _USABLE.update({node_id: look for node_id, look in found.items() if look.problem is None})
        looks |= dict.fromkeys(new, Look()) | found
    return list(looks.values())


def _ask_nodes(question: Callable[[], T], node_ids: Collection[str], num_gpus: float = 0.0) -> dict[str, T | None]:
    """Answers of a process on each node; None of a node that fails, or does not answer in time."""
    import ray

    def begin(node_id: str) -> "ray.ObjectRef[T]":
        # The process ends with its task, and gives the card's memory back.
        options = {"num_cpus": 0, "num_gpus": num_gpus, "max_calls": 1, "label_selector": {NODE_ID: node_id}}
        return ray.remote(**options)(question).remote()

    asked = {begin(node_id): node_id for node_id in node_ids}
    answers: dict[str, T | None] = dict.fromkeys(node_ids)
    done, pending = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_TIMEOUT_S)
    for task in pending:
        ray.cancel(task, force=True)
    for task in done:
        try:
            answers[asked[task]] = ray.get(task)
        except ray.exceptions.RayError as error:
            logger.debug(f"a look at a node has failed: {error}")
    return answers


def look_at_card() -> Look:
    """Find out whether torch can use this process's card, and compute in bf16 there."""
    from orchestrator.cluster.torch_devices import find_card

    try:
        return Look(has_bf16=find_card().has_bf16)
    except ClusterError as error:
        return Look(str(error))


def call_on_device(function: Callable[[str], T], num_cpus: float, num_gpus: float, problem: str, remedy: str = "") -> T:
    """Call `function("cpu")` in this process, or with GPUs `function("cuda")` in one task of the connected Ray.

    What the task warns of is logged here when it ends.

    Args:
        function: takes the name of its device. It may travel to another machine: its paths are absolute.
        num_cpus: logical CPUs of the task.
        problem: what a person is told when the task fails, before Ray's reason: `the model was not scored`.
        remedy: what they are told after it.

    Raises: what `function` raises in this process; its own errors (`OWN_ERRORS`) from the task as well;
        RunFailedError for what else goes wrong there.
    """
    if not num_gpus:
        return function("cpu")
    import ray

    task = (
        ray.remote(_begin_and_call)
        .options(num_cpus=num_cpus, num_gpus=num_gpus, num_returns="streaming")
        .remote(function)
    )
    needed = Processes(1, {"CPU": num_cpus, "GPU": num_gpus})
    with waiting_for(task, problem, remedy):
        with warn_when_stalled("work with a GPU has not begun", needed):
            ray.get(next(task))
        for text in ray.get(next(task)):
            logger.warning(text)
        outcome: T | OwnError = ray.get(next(task))
    if isinstance(outcome, OWN_ERRORS):
        raise outcome
    return outcome


@contextmanager
def waiting_for(task: Any, problem: str, remedy: str = "") -> Iterator[None]:
    """Cancel a remote task when its caller stops waiting. Raises: RunFailedError for what Ray says went wrong."""
    import ray

    try:
        yield
    except ray.exceptions.RayError as error:
        raise RunFailedError(f"{problem}: {last_line(error)}{remedy}") from error
    except BaseException:
        with suppress(ray.exceptions.RayError):  # Ray may be gone as well
            ray.cancel(task, force=True)
        raise


def _begin_and_call(function: Callable[[str], T]) -> Iterator[T | OwnError | Sequence[str] | None]:
    """Yield None once there is a place, then the function's warnings, then its result or an error of our own."""
    yield None
    warnings = CollectedWarnings()
    try:
        with attached(warnings):
            outcome: T | OwnError = function("cuda")
    except OWN_ERRORS as error:  # a retry would repeat it
        outcome = error
    finally:
        yield warnings.take()  # also before an error that ends this task
    yield outcome
