"""The function that runs in a Ray Train worker: it finds out its rank, opens its batches, trains, saves the model."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
import ray.train
import ray.train.torch

from orchestrator.corpus.feed import PrefetchPace, ray_batches, window_memory
from orchestrator.errors import OWN_ERRORS, RunStoppedError
from orchestrator.models.device import choose_device, keep_one_order
from orchestrator.periodic import repeating
from orchestrator.pretraining.batch_trace import is_traced, traced
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.loop import TrainingLoop
from orchestrator.results import Event
from orchestrator.storage import join, write_folder
from orchestrator.training.attempts import refuse_without_mark
from orchestrator.training.cards import SLOW_BF16, has_bf16_cpu
from orchestrator.training.event_queue import WorkerPlace
from orchestrator.training.worker_log import kept_output

_INTERVAL_S = 0.5


class StepReports:
    """Number of steps that have ended, and whether the run is to stop; neither costs the training loop a message."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._is_stopping = False

    def note(self, step: int) -> bool:
        """Take down the steps that have begun (on CPUs: ended). Returns whether the driver has asked to stop."""
        self._step = step
        return self._is_stopping

    def exchange(self, report: Callable[[int | None], bool]) -> None:
        """Report the steps and learn of a request to stop."""
        self._is_stopping = report(self._step)


@contextmanager
def reporting_steps(event_queue: Any) -> Iterator[StepReports]:
    """Exchange reports with the driver's event queue from a thread, twice a second, during the block."""
    reports = StepReports()

    def exchange() -> bool:
        try:
            reports.exchange(lambda step: bool(ray.get(event_queue.report_step.remote(step))))
        except ray.exceptions.RayError:
            return False  # the queue is lost: the next event says so
        return True

    with repeating(exchange, _INTERVAL_S, "step-reports"):
        yield reports


@dataclass(frozen=True)
class WorkerOrder:
    """Order of the driver to each worker."""

    job: PretrainJob
    event_queue: Any
    """The actor that takes events."""
    mark: str
    """The driver's mark on the storage."""


def run_worker(config: dict[str, WorkerOrder]) -> None:
    """Train as one worker of Ray Train; `config` holds the driver's `order`."""
    order = config["order"]
    context = ray.train.get_context()
    rank, num_workers = context.get_world_rank(), context.get_world_size()
    node_id = ray.get_runtime_context().get_node_id()
    place = WorkerPlace(rank, socket.gethostname(), os.getpid(), node_id, num_workers)
    if not ray.get(order.event_queue.begin.remote(place)):
        return
    try:
        refuse_without_mark(order.mark)
        with kept_output(order.job.run_folder, order.job.attempt, rank):
            _train(order, Worker(rank, num_workers, ray.train.torch.get_device()))
    except OWN_ERRORS as error:
        # The driver gets the error and ends the run. Other ranks may be waiting for this one: raising makes Ray end the
        # group, and the workers that it starts anew return at once.
        ray.get(order.event_queue.put.remote(error))
        if num_workers > 1:
            raise


def _train(order: WorkerOrder, worker: Worker) -> None:
    job, event_queue = order.job, order.event_queue
    notes: list[str] = []
    # A job with a teacher is of a distillation, whose spec holds this one as a section.
    field = "execution.device" if job.teacher_digest is None else "pretraining.execution.device"
    choose_device(
        worker.device.type,
        job.spec.allow_tf32,
        job.spec.precision,
        notes.append,
        trains=True,
        or_else=f"set {field} cpu",
    )
    if worker.device.type == "cpu" and job.spec.precision == "bf16" and not has_bf16_cpu():
        notes.append(f"precision {SLOW_BF16}")
    if worker.device.type == "cuda" and (job.spec.execution.deterministic or is_traced()):
        keep_one_order()

    def emit(event: Event) -> None:
        if ray.get(event_queue.put.remote(event)):
            raise RunStoppedError("the run was stopped")

    # A restarted worker counts from 0; the event queue already has the events of the worker before it.
    already_there = ray.get(event_queue.num_put.remote())
    with ExitStack() as until_end:
        reports = until_end.enter_context(reporting_steps(event_queue)) if worker.rank == 0 else StepReports()
        loop = TrainingLoop(
            job,
            worker,
            emit,
            num_confirmed=lambda: ray.get(event_queue.num_confirmed.remote()) - already_there,
            note_step=reports.note,
            find_hosts=lambda: tuple(place.host for place in ray.get(event_queue.status.remote()).places),
        )
        for note in notes:
            loop.events.warn(note)
        batches = partial(
            ray_batches,
            job.stream,
            rank=worker.rank,
            num_workers=worker.num_workers,
            num_cpus=job.spec.execution.data_cpus,
            reserved_on=ray.get_runtime_context().get_node_id() if job.spec.execution.is_elastic else None,
            pace=PrefetchPace(window_memory(ray.train.get_context().get_local_world_size()), loop.events.warn),
        )
        is_complete = loop.train(traced(batches, worker, job.attempt))
    if is_complete and worker.rank == 0:
        save_model(loop, job)


def save_model(loop: TrainingLoop, job: PretrainJob) -> None:
    """Save the model and its tokenizer in Hugging Face's layout, in the run's folder."""
    with write_folder(join(job.run_folder, "model")) as folder:
        loop.write_model(folder)
