"""A job, and what a driver says at a bad end. Alone: pytest tests/orchestrator/pretraining/test_launch.py"""

import re
import threading
from pathlib import Path
from typing import Any

import pytest
import ray
import ray.exceptions
import ray.train
import torch

from bert_core.errors import TokenizerError
from bert_core.heads import BertForPreTraining
from bert_core.objectives import TOKEN_OBJECTIVES
from bert_core.objectives.masked_lm import MaskedLM
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.base.errors import ClusterError, OrchestratorError, RunFailedError, RunStoppedError
from orchestrator.base.results import MessageEvent
from orchestrator.base.settings import Settings
from orchestrator.execution.runner import run_spec
from orchestrator.pretraining import worker
from orchestrator.pretraining.job import build_model, check_start
from orchestrator.pretraining.launch import FailureReport, _run, _train, failure_cause, root_failure, training_error
from orchestrator.specs import ModelSpec, PretrainSpec
from orchestrator.specs.network import build_config
from orchestrator.training.event_queue import EventQueue, WorkerFailure, WorkerPlace
from tests.orchestrator.pretraining.small_run import make_job, make_tokenizer, write_spec
from tests.orchestrator.training.local_actor import LocalActor
from tests.waiting import PATIENCE_S


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
    found = training_error(error, "7f3a", failures)
    assert type(found) is kind
    assert re.search(message, str(found))


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


def test_a_workers_link_learns_of_a_stop_a_failure_and_a_lost_queue_when_it_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray, "get", lambda value: value)
    queue = EventQueue()
    queue.put(MessageEvent("of the worker before"))
    link = worker.DriverLink(LocalActor(queue))
    link.emit(MessageEvent("first"))
    assert not link.note_step(1)
    queue.take(2)
    queue.stop()
    assert link.ask()
    assert (queue.status().step, link.num_confirmed(), link.note_step(2)) == (1, 1, True)
    queue.put(RunStoppedError("the driver has left"))
    link.emit(MessageEvent("second"))
    link.ask()
    with pytest.raises(RunStoppedError):
        link.emit(MessageEvent("third"))

    def fail(value: object) -> None:
        raise ray.exceptions.RaySystemError("node died")

    monkeypatch.setattr(ray, "get", fail)
    assert not link.ask()
    with pytest.raises(ray.exceptions.RaySystemError):
        link.raise_end()


@pytest.mark.ray
def test_workers_without_a_place_end_the_run_with_what_is_missing(ray_cluster: None, tmp_path: Path) -> None:
    holder = ray.remote(num_cpus=5.5)(EventQueue).remote()
    ray.get(holder.num_put.remote())
    job = make_job(tmp_path, execution={"max_wait_minutes": 0.05})
    missing = r"training process to begin for .*needs 1 × \{CPU: 1\}; free now: 0\.5 of 6 CPU on "
    with pytest.raises(ClusterError, match=missing):
        _train(job, on_event=lambda event: None, on_wait=lambda: None)
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


def test_a_lost_event_queue_says_how_to_go_on() -> None:
    class Lost:
        def run(self) -> None:
            raise ray.exceptions.RaySystemError("node died")

    loop: Any = Lost()
    with pytest.raises(ClusterError, match=r"lost the process that collects measurements: .*orchestrator resume 7f3a"):
        _run(loop, "7f3a")


def spec(**changes: object) -> PretrainSpec:
    return PretrainSpec(corpus={"files": ["x"]}, tokenizer="x", **({"steps": 5} | changes))


def test_a_model_is_continued_with_its_own_vocabulary_only(tmp_path: Path) -> None:
    own, other = make_tokenizer(), train_wordpiece(["quite another text"] * 3, vocab_size=60, min_frequency=1)
    assert other.vocab_size <= own.vocab_size
    config = build_config(ModelSpec(hidden_size=32), own.vocab_size)
    BertForPreTraining(config).save_pretrained(tmp_path)
    check_start(str(tmp_path), other)  # nothing is known against it
    own.save(tmp_path)
    check_start(str(tmp_path), own)
    with pytest.raises(TokenizerError, match="is not the checkpoint's"):
        check_start(str(tmp_path), other)


class CausalLM(MaskedLM):
    """An objective whose tokens must not see those behind them."""

    is_causal = True


def test_the_token_objective_decides_whether_attention_is_causal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_ways = build_model(make_job(tmp_path))
    both_ways.save_pretrained(tmp_path / "model")
    jobs = [make_job(tmp_path), make_job(tmp_path, init_folder=str(tmp_path / "model"))]
    assert [build_model(job).config.causal_attention for job in jobs] == [False, False]
    monkeypatch.setitem(TOKEN_OBJECTIVES, "masked_lm", CausalLM())  # type: ignore[arg-type]
    models = [build_model(job) for job in jobs]
    assert [model.config.causal_attention for model in models] == [True, True]
    assert models[1].state_dict().keys() == both_ways.state_dict().keys()
    assert all(torch.equal(value, both_ways.state_dict()[name]) for name, value in models[1].state_dict().items())


def test_phases_share_all_steps() -> None:
    tenths = tuple({"share": 0.1} for _ in range(10))
    assert sum(steps for _, steps, _ in spec(steps=6, phases=tenths).phase_steps()) == 6
    assert min(steps for _, steps, _ in spec(steps=6, phases=tenths).phase_steps()) >= 0
    assert spec(steps=100, phases=({"share": 0.9}, {"share": 0.1, "max_seq_length": 512})).phase_steps() == (
        (128, 90, 256),
        (512, 10, 256),
    )
