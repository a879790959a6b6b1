"""What a driver says when training ends badly. Alone: pytest tests/orchestrator/pretraining/test_launch.py"""

import threading
from pathlib import Path
from typing import Any

import pytest
import ray
import ray.exceptions
import ray.train
import torch

from orchestrator.errors import ClusterError, OrchestratorError, RunFailedError
from orchestrator.execution.runner import run_spec
from orchestrator.pretraining import worker
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.launch import FailureReport, _Fit, _follow, _train, failure_cause, root_failure
from orchestrator.pretraining.worker import WorkerOrder
from orchestrator.settings import Settings
from orchestrator.specs import PretrainSpec
from orchestrator.training.event_queue import EventQueue, WorkerFailure, WorkerPlace
from tests.orchestrator.pretraining.small_run import make_job, write_spec
from tests.orchestrator.training.local_actor import LocalActor
from tests.waiting import PATIENCE_S


class Trainer:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def fit(self) -> None:
        raise self.error


class DeathError(Exception):
    """What Ray Train raises for a worker whose process or host has gone."""

    def __init__(self, report: str) -> None:
        super().__init__(f"A worker health check failed.\nWorker info: …\n{report}")
        self.health_check_failure = ray.exceptions.RayActorError(error_msg=report)


KILLED = DeathError(
    "The actor died unexpectedly before finishing this task.\n\tclass_name: RayTrainWorker\nThe actor is dead because "
    "its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a "
    "connection error code 2. End of file. Some common causes include: (1) the process was killed by the OOM killer "
    "due to high memory usage, …"
)
HOST_LOST = DeathError(
    "The actor died unexpectedly.\nThe actor is dead because its node has died. Node Id: 7\n\tthe actor's"
)
NO_MEMORY = DeathError("The actor is dead because its worker process has died: the node was running low on memory.")
PEER_GONE = RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234")


@pytest.mark.parametrize(
    ("error", "failures", "kind", "message"),
    [
        (
            ray.train.WorkerGroupError("workers failed", {1: RuntimeError("Traceback\nout of memory")}),
            (),
            RunFailedError,
            "training worker 1 on an unknown host failed: RuntimeError: out of memory; see orchestrator runs logs 7f3a "
            "--worker 1, then go on with: orchestrator resume 7f3a",
        ),
        (
            ray.train.WorkerGroupError("workers failed", {1: RuntimeError("out of memory")}),
            (WorkerFailure(1, "out of memory", "south"),),
            RunFailedError,
            r"training worker 1 on south failed: out of memory; see .* --worker 1,",
        ),
        (ray.exceptions.RaySystemError("gone"), (), ClusterError, "Ray could not carry out the training: .*gone"),
        (ValueError("odd"), (), RunFailedError, "training failed: odd"),
    ],
)
def test_the_reason_is_one_line_and_says_how_to_go_on(
    error: Exception, failures: tuple[WorkerFailure, ...], kind: type[OrchestratorError], message: str
) -> None:
    trainer: Any = Trainer(error)
    fit = _Fit(trainer)
    fit.run()
    with pytest.raises(kind, match=message):
        fit.raise_reason("7f3a", failures)


@pytest.mark.parametrize(
    ("failures", "rank", "cause"),
    [
        ({0: PEER_GONE, 1: KILLED}, 1, "its process was killed or crashed"),
        ({0: HOST_LOST, 1: PEER_GONE}, 0, "its host was lost (no heartbeat)"),
        ({0: PEER_GONE, 1: NO_MEMORY}, 1, "its host ran out of memory and Ray ended it"),
        ({0: PEER_GONE, 1: RuntimeError("no room"), 2: PEER_GONE}, 1, "RuntimeError: no room"),
    ],
)
def test_the_failure_that_brought_the_others_about_is_named(
    failures: dict[int, BaseException], rank: int, cause: str
) -> None:
    assert root_failure(failures) == (rank, cause)


def test_a_cause_is_one_line_that_ends() -> None:
    gone = DeathError("The actor 72 is unavailable: The actor is temporarily unavailable: RpcError: RPC error: …")
    assert failure_cause(gone) == "its host does not answer"
    assert failure_cause(RuntimeError("first\n" + "x" * 1000)) == "RuntimeError: " + "x" * 286


def test_each_failure_is_reported_with_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = EventQueue()
    queue.begin(WorkerPlace(1, "south", 12))

    monkeypatch.setattr(ray, "get", lambda value: value)
    FailureReport(LocalActor(queue)).after_exception(None, {0: PEER_GONE, 1: KILLED})
    assert [str(failure) for failure in queue.status().failures] == [
        "training worker 1 on south failed: its process was killed or crashed"
    ]


@pytest.mark.ray
def test_workers_without_a_place_end_the_run_with_what_is_missing(ray_cluster: None, tmp_path: Path) -> None:
    holder = ray.remote(num_cpus=5.5)(EventQueue).remote()
    ray.get(holder.num_put.remote())
    job = make_job(tmp_path, execution={"max_wait_minutes": 0.05})
    missing = r"training process to begin for .*needs 1 × \{CPU: 1\}; free now: 0\.5 of 6 CPU on "
    with pytest.raises(ClusterError, match=missing):
        _train(job, use_gpu=False, on_event=lambda event: None, on_wait=lambda: None)
    (fit,) = (thread for thread in threading.enumerate() if thread.name == "fit")
    ray.kill(holder)
    fit.join(PATIENCE_S)
    assert not fit.is_alive(), "a worker that finds a place later has nothing to do"


@pytest.mark.ray
@pytest.mark.training
def test_a_run_on_two_cpus_takes_one_and_a_half_for_its_worker_and_half_of_one_for_its_data(
    ray_cluster: None, tmp_path: Path
) -> None:
    """Given exactly the CPUs that it asks for, in fractions, nothing in it waits for a whole one besides."""
    others = ray.remote(num_cpus=4)(EventQueue).remote()
    ray.get(others.num_put.remote())
    spec = write_spec(tmp_path, 3, num_workers=1, cpus_per_worker=1.5, max_wait_minutes=10)
    try:
        record = run_spec(spec, settings=Settings.from_options(home=str(tmp_path / "home"), environ={}))
    finally:
        ray.kill(others)
    assert record.state == "COMPLETED"


@pytest.mark.parametrize(
    ("teacher_digest", "field"), [(None, "execution.device"), ("ab12", "pretraining.execution.device")]
)
def test_a_worker_without_a_card_names_the_field_of_its_spec(
    teacher_digest: str | None, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    spec = PretrainSpec.model_validate({"corpus": {"files": ["a.txt"]}, "tokenizer": "words", "steps": 1})
    nothing: Any = None
    common: dict[str, Any] = {
        "spec": spec,
        "run_folder": "run",
        "attempt": 1,
        "tokenizer": nothing,
        "init_folder": None,
    }
    job = PretrainJob(**common, stream=nothing, validation=None, teacher_digest=teacher_digest)
    with pytest.raises(ClusterError, match=rf", or set {field} cpu$"):
        worker._train(WorkerOrder(job, nothing, "mark"), Worker(0, 1, torch.device("cuda")))


def test_a_lost_event_queue_says_how_to_go_on() -> None:
    class Lost:
        def follow(self) -> None:
            raise ray.exceptions.RaySystemError("node died")

    follower: Any = Lost()
    with pytest.raises(ClusterError, match=r"lost the process that collects measurements: .*orchestrator resume 7f3a"):
        _follow(follower, "7f3a")
