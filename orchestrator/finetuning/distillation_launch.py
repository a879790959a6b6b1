"""The driver's side of a distillation: one Ray task, whose measurements arrive while it runs."""

import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import ray

from orchestrator.base.console import attached
from orchestrator.base.errors import RunStoppedError
from orchestrator.base.results import DistillResult, Event, MessageEvent
from orchestrator.cluster.capacity import Processes
from orchestrator.cluster.gpus import take_gpus, waiting_for
from orchestrator.cluster.head_watch import watch_head
from orchestrator.cluster.own_errors import OWN_ERRORS, OwnError
from orchestrator.cluster.process_warnings import CollectedWarnings
from orchestrator.cluster.shortage import find_shortage
from orchestrator.finetuning.distillation_job import DistillJob, distill
from orchestrator.specs.distill import DistillSpec
from orchestrator.specs.references import RANDOM
from orchestrator.storage import join
from orchestrator.storage.attempts import how_to_go_on, marked_storage, refuse_without_mark
from orchestrator.storage.uris import absolute
from orchestrator.tasks.task import Task
from orchestrator.training.checkpoints import Checkpoints, delete_checkpoints
from orchestrator.training.event_queue import WorkerPlace, launch_event_queue
from orchestrator.training.worker_log import kept_output
from orchestrator.training.worker_watch import DriverLoop, WorkerWatch


def run_distillation(
    spec: DistillSpec,
    *,
    task: Task,
    run_folder: str,
    attempt: int,
    storage: str,
    resolve_name: Callable[[str, str], str],
    on_event: Callable[[Event], None],
    on_wait: Callable[[], None] = lambda: None,
    allow_drift: bool = False,
) -> DistillResult:
    """Carry out a distillation on the connected Ray. A process that dies goes on from its last evaluation; so does a
    resumed run.

    Args:
        storage: for what runs share.
        resolve_name: the folder of a model that a field names, from field and name.
        on_wait: called several times a second while nothing happens.

    Raises: what `distill` raises; RunFailedError when the process keeps dying; what `on_event` raises.
    """
    task.file("train")  # a task without one teaches nothing
    gpus = take_gpus("the student trains", spec.execution.gpus)
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
        use_gpu=gpus > 0,
    )
    run_id = job.run_folder.rstrip("/").rpartition("/")[2]
    event_queue = launch_event_queue()
    execution = spec.execution
    needed = Processes(1, {"CPU": execution.cpus} | ({"GPU": gpus} if gpus else {}))
    with marked_storage(job.run_folder, attempt) as mark:
        work = (
            ray.remote(_work)
            .options(num_cpus=execution.cpus, num_gpus=gpus, max_retries=execution.max_failures)
            .remote(job, event_queue, mark)
        )
        loop = DriverLoop(
            event_queue,
            on_event,
            WorkerWatch(
                1,
                60 * execution.max_wait_minutes,
                lambda: find_shortage(needed),
                how_to_go_on(run_id),
                reports_steps=False,
                newest_step=Checkpoints(job.run_folder).newest_step,
            ),
            [watch_head(how_to_go_on(run_id)).look, on_wait],
            has_ended=lambda: bool(ray.wait([work], timeout=0)[0]),
            run_folder=job.run_folder,
            safe_place="after the next evaluation",
        )
        with waiting_for(work, "the student's process failed", "; if memory ran out, lower recipe.batch_size"):
            loop.run()
            outcome: DistillResult | OwnError = ray.get(work)
    if isinstance(outcome, Exception):
        raise outcome
    delete_checkpoints(job.run_folder)
    return outcome


def _work(job: DistillJob, event_queue: Any, mark: str) -> DistillResult | OwnError:
    """Run the distillation; return errors that a retry would repeat, and the one of a stop that was asked for."""
    warnings = CollectedWarnings()

    def report(events: Sequence[Event]) -> None:
        warned = [MessageEvent(text, "warning") for text in warnings.take()]
        ray.get([event_queue.put.remote(event) for event in (*warned, *events)])

    def stop_if_asked(step: int) -> None:
        if ray.get(event_queue.is_stopping.remote()):
            raise RunStoppedError(f"the run was stopped after step {step:,}")

    try:
        if not ray.get(event_queue.begin.remote(WorkerPlace(0, socket.gethostname(), os.getpid()))):
            raise RunStoppedError("the run was stopped before it began")
        refuse_without_mark(mark)
        with kept_output(job.run_folder, job.attempt, rank=0), attached(warnings):
            return distill(job, report, stop_if_asked)
    except OWN_ERRORS as error:
        return error
    finally:
        report([])  # what was warned of since the last evaluation
