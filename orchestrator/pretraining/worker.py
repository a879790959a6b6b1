"""The function that runs in a Ray Train worker: it finds out its rank, opens its batches, trains, saves the model."""

import os
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
import ray.train
import ray.train.torch

from orchestrator.base.errors import RunStoppedError
from orchestrator.base.periodic import repeating
from orchestrator.base.results import Event
from orchestrator.cluster.own_errors import OWN_ERRORS
from orchestrator.cluster.torch_devices import SLOW_BF16, choose_device, has_bf16_cpu, keep_one_order
from orchestrator.corpus.feed import PrefetchPace, ray_batches, window_memory
from orchestrator.pretraining.batch_trace import is_traced, traced
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.loop import TrainingLoop
from orchestrator.storage import join, write_folder
from orchestrator.storage.attempts import refuse_without_mark
from orchestrator.training.event_queue import QueueState, WorkerPlace
from orchestrator.training.worker_log import kept_output

_INTERVAL_S = 0.5


class DriverLink:
    """A worker's link to the driver's event queue. Training never waits for it: a thread of rank 0 asks for its state.

    Calls of one process to an actor keep their order, so events arrive as they were emitted.
    """

    def __init__(self, event_queue: Any) -> None:
        self._queue = event_queue
        # A restarted worker counts from 0; the event queue already has the events of the worker before it.
        self._num_before: int = ray.get(event_queue.num_put.remote())
        self._step: int | None = None
        self._state = QueueState()
        self._lost: Exception | None = None

    def ask(self) -> bool:
        """Report the steps that have ended, and learn the queue's state; returns whether the queue is there."""
        try:
            self._state = ray.get(self._queue.report_step.remote(self._step))
        except ray.exceptions.RayError as error:
            self._lost = error
        return self._lost is None

    def raise_end(self) -> None:
        """Raise the reason why the work must end, where there is one. Raises: RunStoppedError, RayError."""
        if self._lost is not None:
            raise self._lost
        if self._state.has_failed:
            raise RunStoppedError("the run was stopped")

    def emit(self, event: Event) -> None:
        """Send an event. Raises: as `raise_end` does."""
        self.raise_end()
        self._queue.put.remote(event)

    def num_confirmed(self) -> int:
        """Number of this worker's events, from the first on, that were recorded when the thread last asked."""
        return self._state.num_confirmed - self._num_before

    def note_step(self, step: int) -> bool:
        """Take down the steps that have begun (on CPUs: ended). Returns whether the driver has asked to stop."""
        self._step = step
        return self._state.is_stopping

    def find_hosts(self) -> tuple[str, ...]:
        """Hosts of the workers that have begun, by rank."""
        return tuple(place.host for place in ray.get(self._queue.status.remote()).places)


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
    place = WorkerPlace(rank, socket.gethostname(), os.getpid(), num_workers)
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
    job = order.job
    notes: list[str] = []
    choose_device(worker.device.type, job.spec.allow_tf32, job.spec.precision, notes.append)
    if worker.device.type == "cpu" and job.spec.precision == "bf16" and not has_bf16_cpu():
        notes.append(f"precision {SLOW_BF16}")
    if worker.device.type == "cuda" and (job.spec.execution.deterministic or is_traced()):
        keep_one_order()
    link = DriverLink(order.event_queue)
    with ExitStack() as until_end:
        if worker.rank == 0:
            until_end.enter_context(repeating(link.ask, _INTERVAL_S, "driver-link"))
        loop = TrainingLoop(job, worker, link.emit, link.num_confirmed, link.note_step, link.find_hosts)
        for note in notes:
            loop.events.warn(note)
        batches = partial(
            ray_batches,
            job.stream,
            rank=worker.rank,
            num_workers=worker.num_workers,
            num_cpus=job.spec.execution.data_cpus,
            reserved_on=ray.get_runtime_context().get_node_id() if job.spec.execution.is_elastic else None,
            pace=PrefetchPace(window_memory(ray.train.get_context().get_local_world_size())),
        )
        is_complete = loop.train(traced(batches, worker, job.attempt))
    if worker.rank == 0:
        link.ask()  # all events have arrived then
        link.raise_end()
        if is_complete:
            with write_folder(join(job.run_folder, "model")) as folder:
                loop.write_model(folder)
