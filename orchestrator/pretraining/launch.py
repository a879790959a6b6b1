"""The driver's side of pretraining: the corpus, the job, Ray Train, and the events that come back."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import ray
import ray.train
from ray.train.torch import TorchTrainer

from bert_core.text.tokenization import Tokenizer
from orchestrator.corpus.build import build_token_store
from orchestrator.corpus.stream import SplitShards
from orchestrator.corpus.token_store import TokenStore
from orchestrator.errors import ClusterError, RunFailedError, RunStoppedError, last_line
from orchestrator.models.info import describe_model
from orchestrator.pretraining.job import PretrainJob, StepLoss, build_held_out, build_stream, check_start
from orchestrator.pretraining.worker import run_worker
from orchestrator.results import DatasetResult, Event, MetricEvent, PretrainResult
from orchestrator.specs import PretrainSpec
from orchestrator.storage import delete, join
from orchestrator.training.event_queue import EventQueueActor

POLL_S = 0.3
ENDING_S = 30.0
"""How long a failed run waits for its workers to be gone."""


@dataclass(frozen=True)
class PretrainRequest:
    """What the driver decides about one attempt."""

    spec: PretrainSpec
    storage: str
    run_folder: str
    attempt: int
    tokenizer: Tokenizer
    init_folder: str | None
    loss: StepLoss | None = None
    """As in `PretrainJob`, like the next."""
    num_hidden_layers: int | None = None


def run_pretraining(
    request: PretrainRequest,
    *,
    on_event: Callable[[Event], None],
    on_dataset: Callable[[DatasetResult], None],
    on_tokenizing: Callable[[int, int], None],
) -> PretrainResult:
    """Pretrain from the run's last checkpoint, or from the start; Ray is connected already.

    Raises: RunFailedError with the workers' reason; CorpusError, TokenizerError and the like as they are.
    """
    started_at = time.monotonic()
    spec = request.spec
    if request.init_folder is not None:
        check_start(request.init_folder, request.tokenizer)
    dataset = build_token_store(
        spec.corpus,
        request.tokenizer,
        validation_fraction=spec.validation_fraction,
        shard_bytes=spec.shard_bytes,
        storage=request.storage,
        progress=on_tokenizing,
    )
    on_dataset(dataset)
    job = build_job(request, dataset)
    last: dict[str, float] = {}

    def collect(event: Event) -> None:
        if isinstance(event, MetricEvent):
            last.update({f"{event.split}.{name}": value for name, value in event.values.items()})
        on_event(event)

    _train(job, collect)
    return PretrainResult(
        model=describe_model(join(request.run_folder, "model"), "pretraining"),
        num_steps=spec.steps,
        metrics=last,
        datasets=(dataset,),
        seconds=time.monotonic() - started_at,
    )


def build_job(request: PretrainRequest, dataset: DatasetResult) -> PretrainJob:
    """The value that travels to the workers."""
    store = TokenStore.open(dataset.path)
    return PretrainJob(
        run_folder=request.run_folder,
        attempt=request.attempt,
        spec=request.spec,
        tokenizer=request.tokenizer,
        init_folder=request.init_folder,
        stream=build_stream(request.spec, SplitShards(store, "train"), request.tokenizer),
        held_out=build_held_out(request.spec, SplitShards(store, "held_out"), request.tokenizer),
        loss=request.loss,
        num_hidden_layers=request.num_hidden_layers,
    )


def _train(job: PretrainJob, on_event: Callable[[Event], None]) -> None:
    run_id = job.run_folder.rstrip("/").rpartition("/")[2]
    event_queue = EventQueueActor.remote()
    scratch = join(job.run_folder, "ray")
    delete(scratch)  # an earlier attempt that was killed left its own
    fit = _Fit(_build_trainer(job, event_queue, join(scratch, f"{job.attempt}-{uuid4().hex[:6]}")))
    fit.start()
    try:
        while fit.is_alive():
            _drain(event_queue, on_event, run_id)
            time.sleep(POLL_S)
        _drain(event_queue, on_event, run_id)
        fit.raise_reason(run_id)
    except BaseException as error:
        # On a Ray that outlives this call the workers would train on: they see it with their next event, and leave.
        with suppress(ray.exceptions.RayError):  # Ray may be gone as well
            event_queue.put.remote(RunStoppedError("the driver has left"))
        if isinstance(error, Exception):
            fit.join(ENDING_S)
        raise
    finally:
        with suppress(OSError):  # Ray may still be writing there
            delete(scratch)


class _Fit(threading.Thread):
    """`trainer.fit()` beside the driver's thread: in the main one it would take SIGINT for itself, for good."""

    def __init__(self, trainer: TorchTrainer) -> None:
        super().__init__(name="fit", daemon=True)
        self._trainer = trainer
        self._error: BaseException | None = None

    def run(self) -> None:
        """Train; what goes wrong is kept."""
        try:
            self._trainer.fit()
        except BaseException as error:
            self._error = error

    def raise_reason(self, run_id: str) -> None:
        """Raise what went wrong, in one line."""
        error = self._error
        if error is None:
            return
        if isinstance(error, ray.train.WorkerGroupError):
            first = next(iter(error.worker_failures.values()), error)
            raise RunFailedError(
                f"a training worker failed: {last_line(first)}; "
                f"see orchestrator runs logs {run_id}, then orchestrator resume {run_id}"
            ) from error
        if isinstance(error, ray.exceptions.RayError):
            raise ClusterError(f"Ray could not carry out the training: {last_line(error)}") from error
        raise RunFailedError(f"training failed: {last_line(error)}") from error


def _build_trainer(job: PretrainJob, event_queue: Any, scratch: str) -> TorchTrainer:
    execution = job.spec.execution
    return TorchTrainer(
        run_worker,
        train_loop_config={"job": job, "event_queue": event_queue},
        scaling_config=ray.train.ScalingConfig(
            num_workers=execution.num_workers,
            use_gpu=uses_gpu(job.spec),
            resources_per_worker={"CPU": execution.cpus_per_worker} | ({"GPU": 1} if uses_gpu(job.spec) else {}),
        ),
        run_config=ray.train.RunConfig(
            name="train",
            storage_path=scratch,
            failure_config=ray.train.FailureConfig(max_failures=execution.max_failures),
        ),
    )


def uses_gpu(spec: PretrainSpec) -> bool:
    """Whether workers get GPUs: as the spec says, or wherever the cluster has enough."""
    if spec.execution.device == "auto":
        return bool(ray.cluster_resources().get("GPU", 0.0) >= spec.execution.num_workers)
    return spec.execution.device == "gpu"


def _drain(event_queue: Any, on_event: Callable[[Event], None], run_id: str) -> None:
    try:
        events = ray.get(event_queue.take.remote())
    except ray.exceptions.RayError as error:
        raise ClusterError(
            f"Ray lost the process that collects measurements: {last_line(error)}; "
            f"go on with: orchestrator resume {run_id}"
        ) from error
    for event in events:
        if isinstance(event, Exception):
            raise event
        on_event(event)
