"""The driver's side of a distillation: one Ray task, whose measurements arrive while it runs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import ray

from orchestrator.distillation.job import DistillJob, distill
from orchestrator.errors import OWN_ERRORS, OwnError, RunFailedError, last_line
from orchestrator.results import DistillResult, Event
from orchestrator.specs.distill import DistillSpec
from orchestrator.specs.references import RANDOM
from orchestrator.storage import join
from orchestrator.storage.uris import absolute
from orchestrator.tasks import Task
from orchestrator.training.checkpoints import delete_checkpoints
from orchestrator.training.event_queue import EventQueueActor

_POLL_S = 0.2


def run_distillation(
    spec: DistillSpec,
    *,
    task: Task,
    run_folder: str,
    attempt: int,
    storage: str,
    resolve_name: Callable[[str, str], str],
    on_event: Callable[[Event], None],
    allow_drift: bool = False,
) -> DistillResult:
    """Carry out a distillation on the connected Ray. A process that dies goes on from its last evaluation; so does a
    resumed run.

    Args:
        task: the spec's task.
        storage: for what runs share.
        resolve_name: the folder of a model that a field names, from field and name.

    Raises: what `distill` raises; RunFailedError when the process keeps dying; what `on_event` raises.
    """
    task.file("train")  # a task without one teaches nothing
    init_from = spec.recipe.init_from
    job = DistillJob(
        spec=spec,
        # Ray's processes have another working folder.
        task=task.at_absolute_paths(),
        teacher_folder=absolute(resolve_name("teacher", spec.teacher)),
        init_folder=None if init_from == RANDOM else absolute(resolve_name("init_from", init_from)),
        run_folder=absolute(run_folder),
        cache=join(absolute(storage), "tasks"),
        unlabeled=tuple(map(absolute, spec.unlabeled)),
        attempt=attempt,
        allow_drift=allow_drift,
    )
    event_queue = EventQueueActor.remote()
    execution = spec.execution
    work = (
        ray.remote(_work)
        .options(num_cpus=execution.cpus, num_gpus=execution.gpus, max_retries=execution.max_failures)
        .remote(job, event_queue)
    )
    with waiting_for(work, "the student's process failed", "; if memory ran out, lower recipe.batch_size"):
        outcome = _follow(work, event_queue, on_event)
    if isinstance(outcome, Exception):
        raise outcome
    delete_checkpoints(job.run_folder)
    return outcome


@contextmanager
def waiting_for(work: Any, problem: str, remedy: str = "") -> Iterator[None]:
    """Cancel a remote task when its caller stops waiting. Raises: RunFailedError for what Ray says went wrong."""
    try:
        yield
    except ray.exceptions.RayError as error:
        raise RunFailedError(f"{problem}: {last_line(error)}{remedy}") from error
    except BaseException:
        with suppress(ray.exceptions.RayError):  # Ray may be gone as well
            ray.cancel(work, force=True)
        raise


def _work(job: DistillJob, event_queue: Any) -> DistillResult | OwnError:
    """Run the distillation; return errors that a retry would repeat."""

    def report(events: Sequence[Event]) -> None:
        ray.get([event_queue.put.remote(event) for event in events])

    try:
        return distill(job, report)
    except OWN_ERRORS as error:
        return error


def _follow(work: Any, event_queue: Any, on_event: Callable[[Event], None]) -> DistillResult | Exception:
    """Pass on what arrives until the work has ended; returns what it returned."""
    ended: list[Any] = []
    while not ended:
        ended, _ = ray.wait([work], timeout=_POLL_S)
        for event in ray.get(event_queue.take.remote()):
            on_event(event)
    outcome: DistillResult | Exception = ray.get(work)
    return outcome
