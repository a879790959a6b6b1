"""What the driver records, and its patience. Alone: pytest tests/orchestrator/registry/test_recorder.py"""

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.base.errors import InputError, RegistryError, RegistryUnavailableError, RunStoppedError, SpecError
from orchestrator.base.results import CheckpointEvent, Event, MetricEvent, WorkersEvent
from orchestrator.registry import Registry, database
from orchestrator.registry import recorder as recorder_module
from orchestrator.registry.database import Database, retry_while_unavailable
from orchestrator.registry.recorder import Recorder, RunOutcome
from tests.orchestrator.postgres_server import find_binaries, running_server
from tests.orchestrator.registry.samples import made_with
from tests.waiting import PATIENCE_S

SWEEP = {
    "kind": "sweep",
    "name": "sst2 sweep",
    "tags": ["first"],
    "task": {"id": "sst2", "metric": None},
    "recipe": {"learning_rate": 1e-4, "seed": 0, "init_from": "random"},
}


@pytest.fixture
def recorder(registry: Registry) -> Recorder:
    return Recorder(registry)


def test_a_started_run_carries_what_its_spec_says(recorder: Recorder) -> None:
    run = recorder.start(SWEEP, "f" * 64, storage_path="storage/runs/x")
    assert run.name == run.experiment == "sst2 sweep"
    assert (run.kind, run.task, run.metric) == ("sweep", "sst2", None)
    assert (run.state, run.attempt, run.fingerprint, run.storage_path) == ("RUNNING", 1, "f" * 64, "storage/runs/x")
    assert run.pid is not None
    assert run.host
    assert recorder.registry.annotations.tags(run.id) == ["first"]
    assert recorder.registry.parameters(run.id)["recipe.learning_rate"] == 1e-4


def test_an_attempt_has_the_job_of_its_driver(recorder: Recorder) -> None:
    run = recorder.start({"kind": "pretrain"}, "f")
    Recorder(recorder.registry, "7f3a-2").resume(run.id)
    assert [attempt.job_id for attempt in recorder.registry.attempts(run.id)] == [None, "7f3a-2"]


def test_an_attempt_has_what_it_was_made_with(registry: Registry) -> None:
    run = Recorder(registry, made_with=made_with("a" * 40, "+x = 1")).start({"kind": "pretrain"}, "f")
    assert run.code_version == "0.1.0+gaaaaaaaaaaaa.dxxxxxxxx"
    again = Recorder(registry, made_with=made_with("b" * 40)).resume(run.id)
    assert again.code_version == "0.1.0+gbbbbbbbbbbbb"
    first, second = registry.attempts(run.id)
    assert first.code is not None
    assert (first.code["commit"], first.code["changed_files"]) == ("a" * 40, ["bert_core/a.py"])
    assert (first.command, first.overrides) == ("orchestrator run a.yaml", ["seed=1"])
    assert first.environment == {"hostname": "a", "versions": {"python": "3.11"}}
    assert "diff" not in first.code
    assert (registry.code_diff(run.id, 1), registry.code_diff(run.id, 2)) == ("+x = 1", None)
    assert second.diff_digest is None


def test_an_attempt_has_its_workers_by_the_steps_that_they_left(recorder: Recorder) -> None:
    run = recorder.start({"kind": "pretrain"}, "f")
    wide, narrow = ("a", "a", "b"), ("a", "a")
    for first_step, hosts in [(0, wide), (0, wide), (40, narrow), (60, narrow), (80, wide), (80, narrow), (90, wide)]:
        recorder.record_events(run.id, [WorkersEvent(first_step, hosts)])
    elsewhere = {"hostname": "c", "gpus": ["NVIDIA H200"]}
    recorder.record_events(run.id, [WorkersEvent(99, ["c"], elsewhere)])
    recorder.resume(run.id)
    first, second = recorder.registry.attempts(run.id)
    assert first.workers == [
        {"first_step": 0, "hosts": ["a", "a", "b"]},
        {"first_step": 40, "hosts": ["a", "a"]},
        {"first_step": 90, "hosts": ["a", "a", "b"]},
        {"first_step": 99, "hosts": ["c"], "machine": elsewhere},
    ]
    assert second.workers is None


def test_the_device_of_each_attempt_is_a_tag_and_another_one_is_a_warning(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    run = recorder.start({"kind": "pretrain"}, "f")
    recorder.record_device(run.id, "gpu")
    recorder.record_device(run.id, "gpu")
    assert (recorder.registry.annotations.tags(run.id), caplog.messages) == (["device:gpu"], [])
    recorder.record_device(run.id, "cpu")
    assert recorder.registry.annotations.tags(run.id) == ["device:cpu", "device:gpu"]
    assert caplog.messages[0].startswith("this attempt trains on CPUs, an earlier one did not")


@pytest.mark.parametrize(
    ("exception", "state", "error"),
    [
        (SpecError("spec.yaml: steps: must be at least 1"), "FAILED", "spec.yaml: steps: must be at least 1"),
        (MemoryError(), "FAILED", "MemoryError"),
        (RunStoppedError("stopped on request"), "STOPPED", "stopped on request"),
        (KeyboardInterrupt(), "STOPPED", "interrupted"),
    ],
)
def test_a_failure_is_recorded_with_its_reason(
    recorder: Recorder, exception: BaseException, state: str, error: str
) -> None:
    run = recorder.start({"kind": "pretrain"}, "f")
    recorder.fail(run.id, exception)
    ended = recorder.registry.run(run.id)
    assert (ended.state, ended.error) == (state, error)


def test_a_driver_that_was_taken_over_stays_silent(location: str) -> None:
    with Registry(location) as registry:
        frozen, successor = Recorder(registry), Recorder(registry)
        run = frozen.start({"kind": "pretrain"}, "f")
        assert successor.resume(run.id).attempt == 2
        frozen.fail(run.id, RuntimeError("woke up"))
        assert registry.run(run.id).state == "RUNNING"


def test_heartbeats_keep_coming_until_the_block_ends(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that is away for a while ends none."""
    recorder = Recorder(registry)
    run, heartbeat = recorder.start({"kind": "pretrain"}, "f"), registry.lifecycle.heartbeat
    has_beaten, failures = threading.Event(), [RegistryError("away")] * 3

    def fail_then_beat(run_id: str, attempt: int | None) -> bool:
        if failures:
            raise failures.pop()
        is_owned = heartbeat(run_id, attempt)
        has_beaten.set()
        return is_owned

    monkeypatch.setattr(registry.lifecycle, "heartbeat", fail_then_beat)
    with recorder.heartbeating(run.id, interval_s=0.01) as superseded:
        assert has_beaten.wait(PATIENCE_S)
        assert recorder.registry.run(run.id).heartbeat_at != run.heartbeat_at
        assert not superseded.is_set()
        Recorder(registry).resume(run.id)
        assert superseded.wait(PATIENCE_S)


@pytest.mark.parametrize("step", ["lifecycle.create", "lifecycle.start_attempt", "run"])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_start_whose_answer_is_lost_is_one_run_with_one_attempt(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, step: str, is_committed: bool
) -> None:
    area, _, name = step.rpartition(".")
    owner: Any = registry.lifecycle if area else registry
    use, refusals = getattr(owner, name), [1]

    def lose_the_first_answer(*arguments: Any, **options: Any) -> Any:
        answer = use(*arguments, **options) if is_committed or not refusals else None
        if refusals:
            refusals.pop()
            raise RegistryUnavailableError("The registry cannot be reached.")
        return answer

    monkeypatch.setattr(database, "RETRY_S", 0.0)
    monkeypatch.setattr(owner, name, lose_the_first_answer)
    run = Recorder(registry).start(SWEEP, "f")
    assert list(registry.runs().id) == [run.id]
    assert [attempt.number for attempt in registry.attempts(run.id)] == [run.attempt] == [1]


def test_of_two_processes_that_resume_a_run_at_once_one_is_refused(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(registry)
    run = recorder.start({"kind": "pretrain"}, "f")
    start_attempt = registry.lifecycle.start_attempt

    def after_another_one(run_id: str, **options: Any) -> int:
        monkeypatch.undo()
        start_attempt(run_id, number=2, host="elsewhere", pid=7)
        return start_attempt(run_id, **options)

    monkeypatch.setattr(registry.lifecycle, "start_attempt", after_another_one)
    with pytest.raises(InputError, match="resumed by process 7 on elsewhere just now"):
        recorder.resume(run.id)
    owner = recorder.registry.run(run.id)
    assert (owner.attempt, owner.host, owner.state) == (2, "elsewhere", "RUNNING")


def test_a_resume_of_what_was_read_long_ago_does_not_take_over_from_another_process(recorder: Recorder) -> None:
    """Ray takes its time to start between a look at the run and its next attempt."""
    run = recorder.start({"kind": "pretrain"}, "f")
    recorder.registry.lifecycle.start_attempt(run.id, number=2, host="elsewhere", pid=7)
    with pytest.raises(InputError, match="resumed by process 7 on elsewhere just now"):
        recorder.resume(run.id, after=run.attempt)
    assert recorder.registry.run(run.id).host == "elsewhere"


@dataclass
class Clock:
    """Stands for the module `time`: nobody waits."""

    now_s: float = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize("jump", [timedelta(days=-1), timedelta(hours=3)])
def test_a_runs_seconds_are_counted_by_a_clock_that_does_not_jump(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    clock = Clock()
    monkeypatch.setattr(recorder_module, "time", clock)
    run = recorder.start({"kind": "pretrain"}, "f")
    clock.now_s += 90.0
    after_jump = datetime.now(UTC) + jump
    monkeypatch.setattr("orchestrator.registry.lifecycle.utc_now", lambda: after_jump)
    recorder.complete(run.id, RunOutcome())
    assert recorder.registry.run(run.id).seconds == 90.0


def test_a_driver_whose_clock_jumps_stays_alive(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats and their age are by the database's clock."""
    run, now_s = recorder.start({"kind": "pretrain"}, "f"), time.time()
    for shift_s in (-86_400.0, 86_400.0):
        monkeypatch.setattr(time, "time", lambda shift_s=shift_s: now_s + shift_s)
        assert recorder.registry.lifecycle.heartbeat(run.id, 1)
        assert recorder.registry.run(run.id).state == "RUNNING"


def test_a_registry_that_is_away_for_a_minute_loses_nothing(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run, clock, session = recorder.start({"kind": "pretrain"}, "f"), Clock(), Database.connection

    def away_for_a_minute(database: Database, *, writing: bool) -> Any:
        if 10.0 <= clock.now_s < 70.0:
            raise RegistryUnavailableError("The registry cannot be reached.")
        return session(database, writing=writing)

    monkeypatch.setattr(database, "time", clock)
    monkeypatch.setattr(recorder.given_up, "wait", clock.sleep)
    monkeypatch.setattr(Database, "connection", away_for_a_minute)
    for step in range(100):
        clock.now_s += 1.0
        events: list[Event] = [MetricEvent(step, "train", {"mlm_loss": 1 / (step + 1)})]
        recorder.record_events(run.id, [*events, CheckpointEvent(step, f"checkpoints/{step}", "d", 10)])
    history = recorder.registry.metrics.history(run.id).frame()
    assert list(history.step) == list(range(100))
    assert list(history.value) == [1 / (step + 1) for step in range(100)]
    assert [checkpoint.step for checkpoint in recorder.registry.checkpoints.of_run(run.id)] == list(range(100))
    assert clock.now_s >= 160.0
    assert caplog.text.count("cannot be reached") == 1


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RegistryUnavailableError("away")

    monkeypatch.setattr(database, "PATIENCE_S", 0.01)
    monkeypatch.setattr(database, "RETRY_S", 0.001)
    with pytest.raises(RegistryUnavailableError):
        retry_while_unavailable(refuse)


def test_a_refusal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RegistryError("no such run")

    monkeypatch.setattr(database, "RETRY_S", 60.0)
    with pytest.raises(RegistryError, match="no such run"):
        retry_while_unavailable(refuse)


@pytest.mark.postgres
def test_a_postgresql_server_may_be_restarted_in_mid_run(monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL: neither initdb nor pg_ctl on this machine")
    with running_server(binaries) as server, Registry(server.url) as registry:
        recorder = Recorder(registry)
        run = recorder.start({"kind": "pretrain"}, "f")
        recorder.record_events(run.id, [MetricEvent(1, "train", {"mlm_loss": 9.0})])
        server.stop()
        with pytest.raises(RegistryUnavailableError):
            registry.run(run.id)
        monkeypatch.setattr(recorder.given_up, "wait", lambda seconds: server.start())
        recorder.record_events(run.id, [MetricEvent(2, "train", {"mlm_loss": 8.0})])
        assert registry.metrics.history(run.id).values("value") == [9.0, 8.0]
