"""Steps that diverge: what a run says and keeps of them, stops at, passes over. In plain processes.

Run alone: pytest tests/orchestrator/pretraining/test_divergence.py
"""

import json
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bert_core.examples.packing import PackedBatch
from orchestrator.base.errors import RunFailedError
from orchestrator.base.results import CheckpointEvent, Event, MessageEvent, MetricEvent
from orchestrator.pretraining import batch_trace
from orchestrator.pretraining import meter as meter_module
from orchestrator.pretraining.batch_trace import global_batch_digest, read_trace, traced
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.divergence import max_loss
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.loop import TrainingLoop
from orchestrator.pretraining.meter import DivergedStepError, Meter
from orchestrator.specs import PretrainSpec
from orchestrator.training.checkpoints import Checkpoints
from orchestrator.training.snapshots import snapshot_folders
from tests.orchestrator.pretraining.poisoned_run import poisoned
from tests.orchestrator.pretraining.small_run import final_digests, make_job, run

training = pytest.mark.training


@pytest.fixture(scope="module")
def without_step_13(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Digests of a run that never saw the batch of step 13."""
    folder = tmp_path_factory.mktemp("without")
    job = make_job(folder)

    def batches(first_step: int) -> Iterator[tuple[int, PackedBatch]]:
        for step in range(first_step, job.spec.steps):
            if step != 12:
                yield from job.stream.batches(range(step, step + 1))

    TrainingLoop(job, Worker(), lambda event: None).train(batches)
    return final_digests(folder)


@training
@pytest.mark.parametrize(("factor", "loss"), [(math.nan, "nan"), (1e6, r"\d+\.?\d*e\+06")])
def test_a_diverged_step_stops_the_run_and_is_kept_with_its_batch(tmp_path: Path, factor: float, loss: str) -> None:
    job = poisoned(tmp_path, 13, factor=factor)
    batch = global_batch_digest(job.stream, 12)
    with pytest.raises(RunFailedError, match=rf"step 13 diverged: its loss is {loss}.*batch {batch[:12]}.*; lower "):
        run(job, lambda event: None)
    (entry,) = json.loads((tmp_path / "run" / "divergences.json").read_text())
    assert (entry["step"], entry["batch_sha256"], entry["action"]) == (13, batch, "stopped")
    assert [event.step for event in Checkpoints(job.run_folder).newest_first()] == [10, 5]


@training
@pytest.mark.parametrize("checkpoints", [{"checkpoint_every_steps": 5}, {}])
def test_a_batch_that_is_passed_over_leaves_no_trace_wherever_the_checkpoint_was(
    tmp_path: Path, without_step_13: list[str], checkpoints: dict[str, int]
) -> None:
    events: list[Event] = []
    execution = {"log_every_steps": 2, "evaluate_every_steps": 8, **checkpoints}
    run(poisoned(tmp_path, 13, on_divergence="rollback", execution=execution), events.append)
    assert final_digests(tmp_path) == without_step_13
    (warning,) = [e.text for e in events if isinstance(e, MessageEvent) and e.level == "warning"]
    assert "step 13 diverged: its loss is nan" in warning
    assert "goes back to its last checkpoint" in warning
    (entry,) = json.loads((tmp_path / "run" / "divergences.json").read_text())
    assert (entry["step"], entry["loss"], entry["action"]) == (13, "nan", "passed over")
    logged = {e.step: e.values["loss"] for e in events if isinstance(e, MetricEvent)}
    assert all(map(math.isfinite, logged.values()))


@training
@pytest.mark.parametrize("stop_at", [10, 15])
def test_a_run_that_passed_a_batch_over_resumes_to_the_same_bits(
    tmp_path: Path, without_step_13: list[str], stop_at: int
) -> None:
    """Whether it is stopped before it comes by the batch again, or after a checkpoint that remembers it."""
    job = poisoned(tmp_path, 13, on_divergence="rollback")
    seen: list[Event] = []

    def stop(event: Event) -> None:
        seen.append(event)
        has_gone_back = any("goes back" in e.text for e in seen if isinstance(e, MessageEvent))
        if has_gone_back and isinstance(event, CheckpointEvent) and event.step == stop_at:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        run(job, stop)
    events: list[Event] = []
    run(replace(job, attempt=2), events.append)
    assert final_digests(tmp_path) == without_step_13
    told = [event.text for event in events if isinstance(event, MessageEvent) and "diverged" in event.text]
    assert len(told) == (1 if stop_at == 10 else 0)


@training
def test_a_run_that_diverges_again_and_again_fails(tmp_path: Path) -> None:
    job = poisoned(tmp_path, 7, 8, 9, on_divergence="rollback", execution={"max_rollbacks": 2, "log_every_steps": 1})
    with pytest.raises(RunFailedError, match=r"step 9 diverged.*2 batches were passed over.*execution\.max_rollbacks"):
        run(job, lambda event: None)
    entries = json.loads((tmp_path / "run" / "divergences.json").read_text())
    assert [(entry["step"], entry["action"]) for entry in entries] == [
        (7, "passed over"), (8, "passed over"), (9, "stopped"),
    ]  # fmt: skip


@training
@pytest.mark.parametrize(("on_divergence", "evaluates_first"), [("stop", False), ("stop", True), ("rollback", False)])
def test_nothing_is_made_of_a_model_that_diverged_between_two_logged_steps(
    tmp_path: Path, on_divergence: str, evaluates_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a snapshot nor an evaluation of it, whichever of them comes first."""
    made: list[str] = []

    def made_of_a_sound_model(name: str, made_by: Callable[..., Any]) -> Callable[..., Any]:
        def make(self: TrainingLoop, argument: Any) -> Any:
            made.append(name)
            assert all(value.isfinite().all() for value in self.model.state_dict().values())
            return made_by(self, argument)

        return make

    for name in ("write_model", "evaluate"):
        monkeypatch.setattr(TrainingLoop, name, made_of_a_sound_model(name, getattr(TrainingLoop, name)))
    execution = {"log_every_steps": 24, "checkpoint_every_steps": 24, "evaluate_every_steps": 8, "snapshot_steps": [6]}
    execution |= {"evaluate_every_steps": 6, "snapshot_steps": [8]} if evaluates_first else {}
    job = poisoned(tmp_path, 5, on_divergence=on_divergence, execution=execution)
    if on_divergence == "stop":
        with pytest.raises(RunFailedError, match="step 5 diverged"):
            run(job, lambda event: None)
        assert snapshot_folders(job.run_folder) == {}
        assert made == []
    else:
        run(job, lambda event: None)
        assert list(snapshot_folders(job.run_folder)) == [6]
        assert made == ["write_model", "evaluate", "evaluate", "evaluate"]


def test_the_first_of_several_bad_steps_is_named_with_the_loss_of_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def reduce_with_an_equal_one(values: torch.Tensor, worker: Worker) -> None:
        values *= worker.num_workers

    monkeypatch.setattr(meter_module, "all_reduce_sum", reduce_with_an_equal_one)
    meter = Meter(Worker(1, 2), ["masked_lm", "next_sentence"], max_loss=5.0)
    meter.look()
    for step, loss in ((1, 1.0), (2, 9.0), (3, math.nan)):
        meter.add(step, torch.tensor([3 * loss, 0.0, 3.0, 4.0, 1.0, 4.0, 50.0]), torch.tensor(0.5))
    with pytest.raises(
        DivergedStepError, match=r"step 2 diverged: its loss is 10 and its gradient's norm 0\.5"
    ) as told:
        meter.look()
    assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)
    meter.look()
    meter.add(4, torch.tensor([3.0, 0.0, 3.0, 4.0, 1.0, 4.0, 50.0]), torch.tensor(math.inf))
    with pytest.raises(DivergedStepError, match=r"step 4 .* norm inf"):
        meter.look()


def test_the_largest_loss_is_that_of_the_spec_or_ten_times_guessing() -> None:
    spec = PretrainSpec(corpus={"files": ["x"]}, tokenizer="x", steps=1)
    assert max_loss(spec, 1000) == pytest.approx(10 * math.log(1000))
    assert max_loss(spec.model_copy(update={"max_loss": 7.5}), 1000) == 7.5


@pytest.fixture
def job(tmp_path: Path) -> PretrainJob:
    """A run of 24 steps in two phases."""
    return make_job(tmp_path, global_batch_size=12)


def consume(job: PretrainJob, steps: range, num_workers: int = 1, attempt: int = 1) -> None:
    """Take these steps' batches as so many workers do."""
    for rank in range(num_workers):

        def batches(first_step: int, rank: int = rank) -> Iterator[tuple[int, PackedBatch]]:
            yield from job.stream.batches(range(first_step, steps.stop), rank, num_workers)

        assert [step for step, _ in traced(batches, Worker(rank, num_workers), attempt)(steps.start)] == list(steps)


def trace_of(
    monkeypatch: pytest.MonkeyPatch, folder: Path, job: PretrainJob, steps: range, num_workers: int = 1
) -> dict[int, str]:
    monkeypatch.setenv(batch_trace.TRACE_VARIABLE, str(folder))
    consume(job, steps, num_workers)
    return read_trace(folder)


def test_any_number_of_workers_leaves_the_same_trace(
    job: PretrainJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trace_of(monkeypatch, tmp_path / "1", job, range(24))
    assert list(whole) == list(range(1, 25))
    assert len(set(whole.values())) == 24
    for num_workers in (2, 3):
        assert trace_of(monkeypatch, tmp_path / str(num_workers), job, range(24), num_workers) == whole


def test_a_killed_and_resumed_run_leaves_the_trace_of_a_straight_one(
    job: PretrainJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trace_of(monkeypatch, tmp_path / "straight", job, range(24))
    trace_of(monkeypatch, tmp_path / "killed", job, range(13))
    consume(job, range(10, 24), num_workers=2, attempt=2)
    assert read_trace(tmp_path / "killed") == whole
