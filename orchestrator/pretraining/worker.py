"""The function that runs in a Ray Train worker: it finds out its rank, opens its batches, trains, saves the model."""

from functools import partial
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch

from orchestrator.corpus.feed import ray_batches
from orchestrator.errors import OWN_ERRORS, RunStoppedError
from orchestrator.pretraining.batch_trace import is_traced, traced
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.loop import TrainingLoop
from orchestrator.results import Event
from orchestrator.storage import join, write_folder


def run_worker(config: dict[str, Any]) -> None:
    """Train as one worker of Ray Train; `config` holds the `job` and the driver's `event_queue`."""
    job: PretrainJob = config["job"]
    event_queue = config["event_queue"]
    if ray.get(event_queue.has_failed.remote()):
        return
    context = ray.train.get_context()
    worker = Worker(context.get_world_rank(), context.get_world_size(), ray.train.torch.get_device())
    if worker.device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        if is_traced():
            torch.use_deterministic_algorithms(True, warn_only=True)

    def emit(event: Event) -> None:
        if ray.get(event_queue.put.remote(event)):
            raise RunStoppedError("the run was stopped")

    # A restarted worker counts from 0; the event queue already has the events of the worker before it.
    already_there = ray.get(event_queue.num_put.remote())
    batches = partial(
        ray_batches,
        job.stream,
        rank=worker.rank,
        num_workers=worker.num_workers,
        num_cpus=job.spec.execution.data_cpus,
    )
    try:
        loop = TrainingLoop(job, worker, emit, lambda: ray.get(event_queue.num_confirmed.remote()) - already_there)
        loop.train(traced(batches, worker, job.attempt))
        if worker.rank == 0:
            save_model(loop, job)
        ray.get(event_queue.num_put.remote())
    except OWN_ERRORS as error:
        # The driver gets the error and ends the run. Other ranks may be waiting for this one: raising makes Ray end the
        # group, and the workers that it starts anew return at once.
        ray.get(event_queue.put.remote(error))
        if worker.num_workers > 1:
            raise


def save_model(loop: TrainingLoop, job: PretrainJob) -> None:
    """Save the model and its tokenizer in Hugging Face's layout, in the run's folder."""
    with write_folder(join(job.run_folder, "model")) as folder:
        loop.write_model(folder)
