"""The driver's side of pretraining: the corpus, the job, Ray Train, the events that come back, and failures.

| what happens | what follows |
| --- | --- |
| a worker raises an error of the project (`OWN_ERRORS`) | the run ends with it, as the same would happen again |
| a worker dies, or any other error | a line says so; Ray starts all anew, `max_failures` times (a line says where) |
| the first worker cannot read a checkpoint | all raise: what a person must mend, or what restarts them |
| workers find no place, or no step ends | lines say so (`training/worker_watch.py`); it ends after `max_wait_minutes` |
| the first Ctrl-C or SIGTERM | the workers save a checkpoint and end (`training/worker_watch.py`) |
| the driver leaves: an error, a second Ctrl-C, another attempt | the first worker ends at its next event |
| Ray is gone | the run ends; it can be resumed |

A run that has ended with an error, or was stopped, goes on from its last checkpoint with `orchestrator resume`.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import ray
import ray.exceptions
import ray.train
from ray.train import ScalingConfig, UserCallback
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.execution.callback import (
    ControllerCallback,  # nothing public chooses nodes for each group anew
)

from orchestrator.base.errors import ClusterError, OrchestratorError, RunFailedError, RunStoppedError
from orchestrator.base.results import Event, MetricEvent, PretrainResult
from orchestrator.cluster.capacity import Processes, choose_nodes, connected_nodes
from orchestrator.cluster.head_watch import watch_head
from orchestrator.cluster.own_errors import last_line
from orchestrator.cluster.shortage import find_shortage
from orchestrator.corpus.build import build_token_store
from orchestrator.corpus.stream import SplitShards
from orchestrator.corpus.token_store import TokenStore
from orchestrator.pretraining.job import (
    PretrainJob,
    PretrainListener,
    PretrainRequest,
    check_start,
    text_sizes,
    worker_processes,
)
from orchestrator.pretraining.streams import build_stream, build_validation, check_sentences
from orchestrator.pretraining.time_limit import choose_steps
from orchestrator.pretraining.worker import WorkerOrder, run_worker
from orchestrator.specs import PretrainSpec
from orchestrator.storage import delete, join
from orchestrator.storage.attempts import how_to_go_on, marked_storage
from orchestrator.storage.model_folder import describe_model
from orchestrator.training.checkpoints import Checkpoints
from orchestrator.training.event_queue import WorkerFailure, WorkersStatus, launch_event_queue
from orchestrator.training.worker_watch import DriverLoop, WorkerWatch

_MAX_CAUSE_LENGTH = 300
_ENDING_S = 30.0
"""Time that a failed run waits for its workers to end."""
_DEATHS = {
    "its node has died": "its host was lost (no heartbeat)",
    "low on memory": "its host ran out of memory and Ray ended it",
    "process has died": "its process was killed or crashed",
    "is temporarily unavailable": "its host does not answer",
}
"""Words in Ray's report of a death, which fills a screen, and what they mean; the first that is found counts."""
_OF_OTHERS = ("peer", "gloo", "nccl", "connection reset", "connection closed")
"""Words of errors that a worker raises because another one has gone."""


class FailureReport(UserCallback):  # type: ignore[misc]
    """Callback in Ray Train's controller that tells the driver of each failure of its workers."""

    def __init__(self, event_queue: Any) -> None:
        self._event_queue = event_queue

    def after_exception(self, run_context: object, worker_exceptions: Mapping[int, BaseException]) -> None:
        rank, cause = root_failure(worker_exceptions)
        ray.get(self._event_queue.report_failure.remote(rank, cause))


def root_failure(failures: Mapping[int, BaseException]) -> tuple[int, str]:
    """Rank and cause of the first failure: where one worker dies, the others lose their connection to it."""
    causes = {rank: failure_cause(error) for rank, error in sorted(failures.items())}

    def comes_first(rank: int) -> tuple[bool, bool]:
        died = hasattr(failures[rank], "health_check_failure")
        return not died, any(word in causes[rank].lower() for word in _OF_OTHERS)

    rank = min(causes, key=comes_first)
    return rank, causes[rank]


def failure_cause(error: BaseException) -> str:
    """Cause of a worker's failure, in one line."""
    died = getattr(error, "health_check_failure", error)
    if isinstance(died, ray.exceptions.RayActorError):
        report = str(died)
        return next((meaning for words, meaning in _DEATHS.items() if words in report), last_line(died))
    return f"{type(error).__name__}: {last_line(error)}"[:_MAX_CAUSE_LENGTH]


def training_error(error: BaseException, run_id: str, failures: tuple[WorkerFailure, ...]) -> OrchestratorError:
    """Make the error, in one line, for a `fit()` that raised; `failures` are those that were reported before."""
    if isinstance(error, ray.train.WorkerGroupError):
        rank, cause = root_failure(error.worker_failures)
        failure = failures[-1] if failures else WorkerFailure(rank, cause)
        return RunFailedError(
            f"{failure}; see orchestrator runs logs {run_id} --worker {failure.rank}, then {how_to_go_on(run_id)}"
        )
    if isinstance(error, ray.exceptions.RayError):
        return ClusterError(f"Ray could not carry out the training: {last_line(error)}")
    return RunFailedError(f"training failed: {last_line(error)}")


def run_pretraining(request: PretrainRequest, listener: PretrainListener) -> PretrainResult:
    """Pretrain on the connected Ray, from the run's last checkpoint or from the start.

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
        progress=listener.on_tokenizing,
    )
    listener.on_dataset(dataset)
    store = TokenStore.open(dataset.path)
    check_sentences(spec, store.manifest.counts("train"))

    def job_of(spec: PretrainSpec, run_folder: str) -> PretrainJob:
        return PretrainJob(
            **vars(request) | {"spec": spec, "run_folder": run_folder},
            stream=build_stream(spec, SplitShards(store, "train"), request.tokenizer),
            validation=build_validation(spec, SplitShards(store, "validation"), request.tokenizer),
            text_sizes=text_sizes(dataset.files),
        )

    if spec.steps == "auto":
        spec = spec.with_steps(
            choose_steps(
                spec,
                job_of,
                request.run_folder,
                lambda job, on_event: _train(job, on_event, listener.on_wait),
                lambda: request.left_s - (time.monotonic() - started_at),
            )
        )
        listener.on_steps(spec.num_steps)
    last: dict[str, float] = {}

    def collect(event: Event) -> None:
        if isinstance(event, MetricEvent):
            last.update({f"{event.split}.{name}": value for name, value in event.values.items()})
        listener.on_event(event)

    _train(job_of(spec, request.run_folder), collect, listener.on_wait)
    return PretrainResult(
        model=describe_model(join(request.run_folder, "model"), "pretraining"),
        num_steps=spec.num_steps,
        metrics=last,
        datasets=(dataset,),
        seconds=time.monotonic() - started_at,
    )


def _train(job: PretrainJob, on_event: Callable[[Event], None], on_wait: Callable[[], None]) -> None:
    run_id = job.run_folder.rstrip("/").rpartition("/")[2]
    event_queue = launch_event_queue()
    scratch = join(job.run_folder, "ray")
    delete(scratch)  # of an earlier attempt that was killed
    with marked_storage(job.run_folder, job.attempt) as mark:
        order = WorkerOrder(job, event_queue, mark)
        trainer = _build_trainer(order, run_id, join(scratch, f"{job.attempt}-{uuid4().hex[:6]}"))
        errors: list[BaseException] = []

        def run_fit() -> None:
            try:
                trainer.fit()
            except BaseException as error:
                errors.append(error)

        # In the main thread it would replace the handler of SIGINT, for good.
        fit = threading.Thread(target=run_fit, name="fit", daemon=True)
        loop = DriverLoop(
            event_queue,
            on_event,
            _build_watch(job, run_id, event_queue),
            [watch_head(how_to_go_on(run_id)).look, on_wait],
            has_ended=lambda: not fit.is_alive(),
            run_folder=job.run_folder,
            safe_place="after this step",
        )
        fit.start()
        try:
            status = _run(loop, run_id)
            if errors:
                raise training_error(errors[0], run_id, status.failures) from errors[0]
        except BaseException as error:
            # Without this, workers of a Ray that outlives this call would train on.
            with suppress(ray.exceptions.RayError):  # Ray may be gone as well
                event_queue.put.remote(RunStoppedError("the driver has left"))
            if isinstance(error, Exception) and not isinstance(error, ClusterError):
                fit.join(_ENDING_S)
            raise
        finally:
            with suppress(OSError):  # Ray may still write there
                delete(scratch)


def _build_watch(job: PretrainJob, run_id: str, event_queue: Any) -> WorkerWatch:
    execution = job.spec.execution
    needed = worker_processes(job.spec, job.use_gpu)
    return WorkerWatch(
        execution.min_workers,
        60 * execution.max_wait_minutes,
        lambda: find_shortage(replace(needed, labels=ray.get(event_queue.selector.remote()) or needed.labels)),
        how_to_go_on(run_id),
        newest_step=Checkpoints(job.run_folder).newest_step,
    )


def _run(loop: DriverLoop, run_id: str) -> WorkersStatus:
    try:
        return loop.run()
    except ray.exceptions.RayError as error:
        lost = f"Ray lost the process that collects measurements: {last_line(error)}"
        raise ClusterError(f"{lost}; {how_to_go_on(run_id)}") from error


class WorkerPlacement(ControllerCallback):  # type: ignore[misc]
    """Callback in Ray Train's controller that chooses nodes for each group of workers, and tells the driver which.

    Ray Train says how many workers a group has. A group without a place within
    `RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S` is followed by another one, for which nodes are chosen anew.
    """

    def __init__(self, needed: Processes, allows_head: bool, event_queue: Any) -> None:
        self._needed, self._allows_head, self._event_queue = needed, allows_head, event_queue

    def on_controller_start_worker_group(
        self, *, scaling_config: ScalingConfig, num_workers: int
    ) -> Mapping[str, str] | None:
        """Return the label selector of the next group."""
        chosen = choose_nodes(replace(self._needed, count=num_workers), self._allows_head, connected_nodes())
        ray.get(self._event_queue.place_workers.remote(chosen))
        return chosen or None


def _build_trainer(order: WorkerOrder, run_id: str, scratch: str) -> TorchTrainer:
    execution, use_gpu = order.job.spec.execution, order.job.use_gpu
    workers = worker_processes(order.job.spec, use_gpu)
    scaling = ray.train.ScalingConfig(
        num_workers=(workers.count, execution.max_workers) if execution.is_elastic else workers.count,
        use_gpu=use_gpu,
        resources_per_worker=dict(workers.resources),
        placement_strategy=execution.placement.upper(),
        label_selector=dict(workers.labels) or None,  # what an autoscaler is asked for
    )
    return TorchTrainer(
        run_worker,
        train_loop_config={"order": order},
        scaling_config=scaling,
        run_config=ray.train.RunConfig(
            name=run_id,  # what the dashboard calls it
            storage_path=scratch,
            failure_config=ray.train.FailureConfig(max_failures=execution.max_failures),
            callbacks=[
                FailureReport(order.event_queue),
                WorkerPlacement(workers, execution.on_head, order.event_queue),
            ],
        ),
    )
