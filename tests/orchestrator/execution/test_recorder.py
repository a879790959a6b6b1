"""From results to rows: every kind of result, twice over; failures; heartbeats.

pytest tests/orchestrator/execution/test_recorder.py
"""

import threading
import time
from typing import Any

import pytest

from orchestrator.errors import RegistryError, RegistryUnavailableError, RunStoppedError, SpecError
from orchestrator.execution import recorder as recorder_module
from orchestrator.execution.recorder import Recorder, retry_while_unavailable
from orchestrator.registry import Registry
from orchestrator.results import (
    CheckpointEvent,
    DatasetResult,
    DistillResult,
    EvaluationResult,
    Event,
    MessageEvent,
    MetricEvent,
    PretrainResult,
    Result,
    SweepResult,
    TokenizerResult,
    TrialResult,
    TrialStart,
)
from tests.orchestrator.postgres_server import find_binaries, running_server
from tests.orchestrator.registry.samples import everything, model_result

SWEEP = {
    "kind": "sweep",
    "name": "sst2 sweep",
    "tags": ["first"],
    "task": {"id": "sst2", "metric": None},
    "recipe": {"learning_rate": 1e-4, "seed": 0, "init_from": "random"},
}
CORPUS = DatasetResult("wiki", "corpus", "c" * 64, "storage/corpora/c", {"num_documents": 3})
TRIALS = [
    TrialResult(
        key=f"k{number}",
        number=number,
        parameters={"learning_rate": rate},
        state="COMPLETED",
        seed=0,
        best_step=10 * (number + 1),
        metrics={"accuracy": score, "baseline.accuracy": 0.5},
        model=model_result(f"digest{number}"),
        predictions_path=f"predictions/{number}",
    )
    for number, (rate, score) in enumerate([(1e-4, 0.8), (2e-5, 0.9)])
]
SWEEP_RESULT = SweepResult("sst2", "accuracy", TRIALS, TRIALS[1], {"accuracy": 0.85}, [CORPUS])
DISTILL_RESULT = DistillResult(
    task="x",
    metric="f1",
    model=model_result(head="ner"),
    best_step=30,
    metrics={"f1": 0.7, "teacher.f1": 0.8, "agreement": 0.9},
    test_metrics={"f1": 0.6},
    predictions_path="predictions.jsonl",
    datasets=[CORPUS],
)


@pytest.fixture
def recorder(registry: Registry) -> Recorder:
    return Recorder(registry)


def test_a_started_run_carries_what_its_spec_says(recorder: Recorder) -> None:
    run = recorder.start(SWEEP, "f" * 64, name="tuesday", storage_path="storage/runs/x")
    assert (run.name, run.experiment, run.kind, run.task, run.metric) == (
        "tuesday",
        "sst2 sweep",
        "sweep",
        "sst2",
        None,
    )
    assert (run.state, run.attempt, run.fingerprint, run.storage_path) == ("RUNNING", 1, "f" * 64, "storage/runs/x")
    assert run.pid is not None
    assert run.host
    assert recorder.registry.tags(run.id) == ["first"]
    assert recorder.registry.parameters(run.id)["recipe.learning_rate"] == 1e-4


def test_events_become_metrics_and_checkpoints(recorder: Recorder) -> None:
    run = recorder.start({"kind": "pretrain"}, "f")
    events: list[Event] = [
        MetricEvent(1, "train", {"mlm_loss": 9.0}),
        MessageEvent("step 1 of 2"),
        CheckpointEvent(1, "checkpoints/1", "d", 10),
        MetricEvent(2, "train", {"mlm_loss": 8.0}),
    ]
    recorder.events(run.id, events)
    once = everything(recorder.registry)
    recorder.events(run.id, events)
    assert everything(recorder.registry) == once
    assert recorder.registry.latest_metrics(run.id) == {"train.mlm_loss": 8.0}
    assert [checkpoint.step for checkpoint in recorder.registry.checkpoints(run.id)] == [1]


def test_a_sweep_carries_its_best_trials_scores(recorder: Recorder) -> None:
    run = recorder.start(SWEEP, "f")
    trial = recorder.trial_started(run.id, TrialStart("k1", 1, {"learning_rate": 2e-5}, seed=0))
    recorder.events(trial, [MetricEvent(step, "validation", {"accuracy": step / 100}) for step in (20, 99)])
    assert recorder.trial(run.id, TRIALS[1]) == trial
    recorder.result(run.id, SWEEP_RESULT)
    registry = recorder.registry
    scores = {"accuracy": 0.9, "baseline.accuracy": 0.5, "test.accuracy": 0.85}
    assert registry.latest_metrics(run.id) == registry.latest_metrics(trial) == scores
    sweep = registry.run(run.id)
    assert (sweep.state, sweep.metric) == ("COMPLETED", "accuracy")
    assert (sweep.model_folder, sweep.predictions_path) == ("storage/digest1", "predictions/1")
    assert registry.model("sst2 sweep").run_id == run.id
    assert list(registry.trials(run.id).id)[1] == trial
    assert list(registry.leaderboard("sst2")["test"].dropna()) == [0.85]
    assert list(registry.datasets(run.id).name) == ["wiki"]


def test_a_pretraining_registers_its_model_under_the_specs_name(recorder: Recorder) -> None:
    run = recorder.start({"kind": "pretrain", "name": "tiny wiki", "seed": 3}, "f", name="again")
    metrics = {"train.mlm_loss": 2.0, "validation.mlm_loss": 2.5, "validation.perplexity": 12.2}
    recorder.events(run.id, [MetricEvent(100, "train", {"mlm_loss": 2.0})])
    recorder.result(run.id, PretrainResult(model_result(head="pretraining"), 100, metrics, [CORPUS]))
    registry = recorder.registry
    assert registry.latest_metrics(run.id) == {"mlm_loss": 2.5, "perplexity": 12.2, "train.mlm_loss": 2.0}
    model = registry.model("tiny wiki")
    assert (model.run_id, model.head, model.folder) == (run.id, "pretraining", registry.run(run.id).model_folder)
    assert registry.run(run.id).seed == 3


def test_a_tokenizer_and_a_corpus_are_found_again_through_their_run(recorder: Recorder) -> None:
    tokenizer = recorder.start({"kind": "tokenizer"}, "t")
    recorder.result(tokenizer.id, TokenizerResult("tokenizers/t", "t" * 64, 30522, {"fertility": 1.2}))
    corpus = recorder.start({"kind": "corpus"}, "c")
    recorder.result(corpus.id, CORPUS)
    registry = recorder.registry
    (row,) = registry.datasets(tokenizer.id).to_dict("records")
    assert (row["kind"], row["path"], row["counts"]) == ("tokenizer", "tokenizers/t", {"vocab_size": 30522})
    assert registry.latest_metrics(tokenizer.id) == {"fertility": 1.2}
    assert list(registry.datasets(corpus.id).fingerprint) == ["c" * 64]


def test_a_distillation_leaves_a_student_and_both_scores(recorder: Recorder) -> None:
    run = recorder.start({"kind": "distill", "name": "small", "task": {"id": "x"}}, "f", metric="f1")
    recorder.result(run.id, DISTILL_RESULT)
    registry = recorder.registry
    assert registry.latest_metrics(run.id) == {"f1": 0.7, "teacher.f1": 0.8, "agreement": 0.9, "test.f1": 0.6}
    assert (registry.model("small").head, registry.model("small").run_id) == ("ner", run.id)
    ended = registry.run(run.id)
    assert (ended.model_folder, ended.predictions_path) == (DISTILL_RESULT.model.folder, "predictions.jsonl")
    assert list(registry.datasets(run.id).fingerprint) == ["c" * 64]
    assert list(registry.runs("metrics.teacher.f1 > 0.75 and metrics.f1 < 0.75")["id"]) == [run.id]


def test_an_evaluation_scores_its_split(recorder: Recorder) -> None:
    run = recorder.start({"kind": "evaluate", "task": {"id": "sst2"}}, "f")
    recorder.result(run.id, EvaluationResult("sst2", "test", {"accuracy": 0.9}, 1821, "predictions.jsonl"))
    assert recorder.registry.latest_metrics(run.id) == {"test.accuracy": 0.9, "test.num_examples": 1821.0}
    assert recorder.registry.run(run.id).predictions_path == "predictions.jsonl"


@pytest.mark.parametrize(
    ("spec", "result"),
    [
        (SWEEP, SWEEP_RESULT),
        ({"kind": "pretrain"}, PretrainResult(model_result(), 100, {"train.mlm_loss": 2.0}, [CORPUS])),
        ({"kind": "tokenizer"}, TokenizerResult("folder", "t" * 64, 100)),
        ({"kind": "corpus"}, CORPUS),
        ({"kind": "distill", "task": {"id": "x"}}, DISTILL_RESULT),
        ({"kind": "evaluate", "task": {"id": "x"}}, EvaluationResult("x", "validation", {"f1": 0.5}, 10)),
    ],
    ids=["sweep", "pretrain", "tokenizer", "corpus", "distill", "evaluate"],
)
def test_a_result_handed_over_twice_is_recorded_once(recorder: Recorder, spec: Any, result: Result) -> None:
    run = recorder.start(spec, "f")
    recorder.result(run.id, result)
    once = everything(recorder.registry)
    recorder.result(run.id, result)
    assert everything(recorder.registry) == once
    assert recorder.registry.run(run.id).state == "COMPLETED"


@pytest.mark.parametrize(
    ("exception", "state", "error"),
    [
        (SpecError("spec.yaml: steps: must be at least 1"), "FAILED", "spec.yaml: steps: must be at least 1"),
        (MemoryError(), "FAILED", "MemoryError"),
        (RunStoppedError("stopped on request"), "STOPPED", "stopped on request"),
        (KeyboardInterrupt(), "STOPPED", "KeyboardInterrupt"),
    ],
)
def test_a_failure_is_recorded_with_its_reason(
    recorder: Recorder, exception: BaseException, state: str, error: str
) -> None:
    run = recorder.start({"kind": "pretrain"}, "f")
    recorder.failed(run.id, exception)
    ended = recorder.registry.run(run.id)
    assert (ended.state, ended.error) == (state, error)


def test_a_driver_that_was_taken_over_stays_silent(location: str) -> None:
    with Registry(location) as registry:
        frozen, successor = Recorder(registry), Recorder(registry)
        run = frozen.start({"kind": "pretrain"}, "f")
        assert successor.resume(run.id).attempt == 2
        frozen.failed(run.id, RuntimeError("woke up"))
        assert registry.run(run.id).state == "RUNNING"


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_heartbeats_keep_coming_until_the_block_ends(recorder: Recorder) -> None:
    run = recorder.start({"kind": "pretrain"}, "f")
    with recorder.heartbeating(run.id, interval_s=0.01) as superseded:
        wait_for(lambda: recorder.registry.run(run.id).heartbeat_at != run.heartbeat_at)
        assert not superseded.is_set()
        Recorder(recorder.registry).resume(run.id)
        wait_for(superseded.is_set)


def test_a_registry_that_is_away_for_a_while_ends_no_heartbeat(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorder.start({"kind": "pretrain"}, "f")
    failures = []

    def unreachable(*_: Any) -> bool:
        failures.append(1)
        raise RegistryError("away")

    with recorder.heartbeating(run.id, interval_s=0.01):
        with monkeypatch.context() as patched:
            patched.setattr(recorder.registry, "heartbeat", unreachable)
            wait_for(lambda: len(failures) > 2)
        wait_for(lambda: recorder.registry.run(run.id).heartbeat_at != run.heartbeat_at)


def test_a_registry_that_does_not_answer_is_waited_for(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run, refusals = recorder.start({"kind": "pretrain"}, "f"), [1, 2]
    record_metrics = recorder.registry.record_metrics

    def sometimes_away(*arguments: Any, **options: Any) -> int:
        if refusals:
            refusals.pop()
            raise RegistryUnavailableError("The registry cannot be reached.")
        return record_metrics(*arguments, **options)

    monkeypatch.setattr(recorder_module, "RETRY_S", 0.001)
    monkeypatch.setattr(recorder.registry, "record_metrics", sometimes_away)
    recorder.events(run.id, [MetricEvent(1, "train", {"mlm_loss": 9.0})])
    assert recorder.registry.latest_metrics(run.id) == {"train.mlm_loss": 9.0}
    assert caplog.text.count("cannot be reached") == 1


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RegistryUnavailableError("away")

    monkeypatch.setattr(recorder_module, "PATIENCE_S", 0.01)
    monkeypatch.setattr(recorder_module, "RETRY_S", 0.001)
    with pytest.raises(RegistryUnavailableError):
        retry_while_unavailable(refuse)


def test_a_refusal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RegistryError("no such run")

    monkeypatch.setattr(recorder_module, "RETRY_S", 60.0)
    with pytest.raises(RegistryError, match="no such run"):
        retry_while_unavailable(refuse)


def test_a_postgresql_server_may_be_restarted_in_mid_run(monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL: neither initdb nor pg_ctl on this machine")
    monkeypatch.setattr(recorder_module, "RETRY_S", 0.05)
    with running_server(binaries) as server, Registry(server.url) as registry:
        recorder = Recorder(registry)
        run = recorder.start({"kind": "pretrain"}, "f")
        recorder.events(run.id, [MetricEvent(1, "train", {"mlm_loss": 9.0})])
        server.stop()
        with pytest.raises(RegistryUnavailableError):
            registry.run(run.id)
        back = threading.Timer(0.5, server.start)
        back.start()
        recorder.events(run.id, [MetricEvent(2, "train", {"mlm_loss": 8.0})])
        back.join()
        assert list(registry.metrics(run.id).value) == [9.0, 8.0]
