"""A distillation that was killed goes on from its last evaluation and ends with the same bits; it tells what it told.

Run alone: pytest tests/orchestrator/finetuning/test_distillation_resuming.py
"""

import random
from pathlib import Path

import pytest

from bert_core.errors import CheckpointError
from orchestrator.base.errors import RunStoppedError
from orchestrator.base.results import DistillResult, MessageEvent, MetricEvent
from orchestrator.finetuning.distillation_loss import DistillationLoss
from orchestrator.storage import digest_file
from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.bench import Killed
from tests.orchestrator.finetuning.tiny_distillation import Bench, train_teacher

pytestmark = pytest.mark.training

FIELDS = {
    "num_hidden_layers": 1,
    "objective": {"labels_weight": 0.5},
    "recipe": {"epochs": 2.0, "dropout": 0.1, "evaluations_per_epoch": 3, "learning_rate": 1e-3},
}
NUM_STEPS, NUM_EVALUATIONS = 40, 6
SEED = 11


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A teacher and its task."""
    folder = tmp_path_factory.mktemp("bench")
    task = tiny_tasks.classification(folder / "task")
    return Bench(task, train_teacher(task, folder), folder)


@pytest.fixture(scope="module")
def straight(bench: Bench) -> tuple[str, dict[str, float], list[MetricEvent]]:
    """Digest, scores and measurements of a distillation that nothing interrupts."""
    bench.events.clear()
    result = bench.run(**FIELDS)
    return digest_of(result), scores_of(result), measured(bench)


def digest_of(result: DistillResult) -> str:
    return digest_file(f"{result.model.folder}/model.safetensors")


def scores_of(result: DistillResult) -> dict[str, float]:
    return {name: value for name, value in result.metrics.items() if "per_s" not in name and "speed" not in name}


def measured(bench: Bench) -> list[MetricEvent]:
    """The measurements that do not depend on the machine, each once, by step."""
    found = {
        (event.step, event.split): MetricEvent(
            event.step, event.split, {k: v for k, v in event.values.items() if k != "examples_per_s"}, event.epoch
        )
        for event in bench.events
        if isinstance(event, MetricEvent)
    }
    return [found[key] for key in sorted(found)]


def run_until(bench: Bench, monkeypatch: pytest.MonkeyPatch, attempt: int, place: str, count: int) -> None:
    """Kill a distillation at its count-th step, report or checkpoint, before or after it was told or written."""
    left = iter(range(count - 1, -1, -1))

    def strike() -> None:
        if next(left, 1) == 0:
            raise Killed

    with monkeypatch.context() as patch:
        if place == "step":
            call = DistillationLoss.__call__
            patch.setattr(DistillationLoss, "__call__", lambda *values: (strike(), call(*values))[1])
        elif place == "report":
            tell = bench.report
            patch.setattr(bench, "report", lambda events: (strike(), tell(events)))
        else:
            save = Checkpoints.save
            patch.setattr(Checkpoints, "save", lambda *values: (save(*values), strike())[0])
        with pytest.raises(Killed):
            bench.run(attempt=attempt, **FIELDS)


@pytest.mark.parametrize("place", ["step", "report", "save"])
@pytest.mark.core
def test_a_killed_distillation_goes_on_to_the_same_bits(
    place: str, bench: Bench, straight: tuple[str, dict[str, float], list[MetricEvent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = random.Random(f"{SEED} {place}")
    bench.events.clear()
    counts = [
        generator.randrange(1, NUM_STEPS // 3) if place == "step" else generator.randrange(1, 3) for _ in range(3)
    ]
    print(f"killed at {place} {counts}")
    for attempt, count in enumerate(counts, start=1):
        run_until(bench, monkeypatch, attempt, place, count)
    result = bench.run(attempt=4, **FIELDS)
    assert (digest_of(result), scores_of(result), measured(bench)) == straight
    assert any(isinstance(event, MessageEvent) and "goes on after step" in event.text for event in bench.events)


def test_a_stopped_distillation_goes_on_to_the_same_bits(
    bench: Bench, straight: tuple[str, dict[str, float], list[MetricEvent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.events.clear()
    saved: list[int] = []

    def stop(step: int) -> None:
        saved.append(step)
        if len(saved) == 2:
            raise RunStoppedError("stopped on request")

    with monkeypatch.context() as patch:
        patch.setattr(bench, "on_saved", stop)
        with pytest.raises(RunStoppedError, match="on request"):
            bench.run(**FIELDS)
    assert Checkpoints(str(bench.folder / "run")).newest_first()[0].step == saved[-1]
    result = bench.run(attempt=2, **FIELDS)
    assert (digest_of(result), scores_of(result), measured(bench)) == straight


def test_a_distillation_killed_after_its_training_does_not_train_again(
    bench: Bench, straight: tuple[str, dict[str, float], list[MetricEvent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_until(bench, monkeypatch, 1, "save", NUM_EVALUATIONS)
    bench.events.clear()
    monkeypatch.setattr(DistillationLoss, "__call__", lambda *values: pytest.fail("it trains"))
    result = bench.run(attempt=2, **FIELDS)
    assert (digest_of(result), scores_of(result), measured(bench)) == straight


def test_a_distillation_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before(
    bench: Bench,
    straight: tuple[str, dict[str, float], list[MetricEvent]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench.events.clear()
    run_until(bench, monkeypatch, 1, "save", 3)
    newest, before = Checkpoints(str(bench.folder / "run")).newest_first()
    weights = Path(newest.path) / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    result = bench.run(attempt=2, **FIELDS)
    (told,) = (text for text in caplog.messages if f"step {newest.step} is passed over" in text)
    assert "model.safetensors is altered" in told
    assert MessageEvent(f"goes on after step {before.step}") in bench.events
    assert (digest_of(result), scores_of(result), measured(bench)) == straight


def test_what_has_changed_since_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run_until(bench, monkeypatch, 1, "save", 1)
    with pytest.raises(CheckpointError, match=r"spec\.objective\.labels_weight"):
        bench.run(attempt=2, **{**FIELDS, "objective": {"labels_weight": 0.25}})


@pytest.mark.core
def test_an_attempt_that_was_overtaken_stops(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run_until(bench, monkeypatch, 1, "save", 1)
    run_until(bench, monkeypatch, 3, "save", 1)
    with pytest.raises(RunStoppedError, match="resumed elsewhere"):
        bench.run(attempt=2, **FIELDS)
