"""A run whose checkpoints are written while it trains, as on GPUs: the same bits, the same guarantees.

Run alone: pytest tests/orchestrator/pretraining/test_background_checkpoints.py
"""

import errno
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import RunFailedError
from orchestrator.base.results import CheckpointEvent, Event, MessageEvent, MetricEvent
from orchestrator.pretraining import loop as loop_module
from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.pretraining.poisoned_run import poisoned
from tests.orchestrator.pretraining.small_run import final_digests, make_job, run, save_in_background
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.training

SEED = 20261123
WRITING_S = 0.3
"""Time that a slow storage takes; the steps of the small run take less."""


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "CheckpointSaver", save_in_background)


@pytest.fixture
def slow_storage(background: None, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Checkpoints.write

    def write_slowly(*arguments: Any) -> CheckpointEvent:
        threading.Event().wait(WRITING_S)
        return write(*arguments)

    monkeypatch.setattr(Checkpoints, "write", write_slowly)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Digests of a run that waits for its checkpoints."""
    folder = tmp_path_factory.mktemp("straight")
    run(make_job(folder), lambda event: None)
    return final_digests(folder)


@pytest.mark.usefixtures("background")
def test_a_run_ends_with_the_same_bits_and_all_its_checkpoints(
    tmp_path: Path, straight: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    has_gone_on, write = threading.Event(), Checkpoints.write

    def write_late(checkpoints: Checkpoints, step: int, *arguments: Any) -> CheckpointEvent:
        assert step != 5 or has_gone_on.wait(PATIENCE_S)
        return write(checkpoints, step, *arguments)

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, MetricEvent) and event.step == 6:
            has_gone_on.set()

    monkeypatch.setattr(Checkpoints, "write", write_late)
    run(make_job(tmp_path), emit)
    assert final_digests(tmp_path) == straight
    steps = [(type(e), e.step) for e in events if isinstance(e, CheckpointEvent | MetricEvent)]
    assert [step for kind, step in steps if kind is CheckpointEvent] == [5, 10, 15, 20, 24]
    assert steps.index((MetricEvent, 6)) < steps.index((CheckpointEvent, 5)), "training went on"


def test_a_run_killed_while_it_writes_resumes_to_the_same_bits(tmp_path: Path, straight: list[str]) -> None:
    after = random.Random(SEED).randrange(4, 14)
    print(f"kill -9 after {after} events")
    command = [sys.executable, "-m", "tests.orchestrator.pretraining.small_run", str(tmp_path), "in_background"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in range(after):
            child.stdout.readline()
        child.kill()
    run(make_job(tmp_path, attempt=2), lambda event: None)
    assert final_digests(tmp_path) == straight


@pytest.mark.usefixtures("slow_storage")
def test_a_stop_waits_for_its_checkpoint(tmp_path: Path, straight: list[str]) -> None:
    events: list[Event] = []
    run(make_job(tmp_path), events.append, note_step=lambda step: step >= 7)
    assert Checkpoints(str(tmp_path / "run")).newest_step() == 8
    assert isinstance(events[-1], CheckpointEvent)
    run(make_job(tmp_path, attempt=2), lambda event: None)
    assert final_digests(tmp_path) == straight


@pytest.mark.usefixtures("background")
def test_a_write_that_fails_ends_the_run_and_the_one_before_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Checkpoints.write

    def fail_at_ten(checkpoints: Checkpoints, step: int, *arguments: Any) -> CheckpointEvent:
        if step == 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(checkpoints, step, *arguments)

    monkeypatch.setattr(Checkpoints, "write", fail_at_ten)
    events: list[Event] = []
    with pytest.raises(OSError, match="No space left"):
        run(make_job(tmp_path), events.append)
    assert max(event.step for event in events if isinstance(event, MetricEvent)) < 16
    assert Checkpoints(str(tmp_path / "run")).newest_step() == 5


@pytest.mark.usefixtures("slow_storage")
@pytest.mark.core
def test_a_rollback_goes_back_to_the_checkpoint_that_was_being_written(tmp_path: Path) -> None:
    events: list[Event] = []
    run(poisoned(tmp_path, 6, on_divergence="rollback"), events.append)
    assert "goes on at step 5 of 24" in [event.text for event in events if isinstance(event, MessageEvent)]


@pytest.mark.usefixtures("slow_storage")
def test_a_run_that_diverges_leaves_the_checkpoint_that_was_being_written(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="step 6 diverged"):
        run(poisoned(tmp_path, 6), lambda event: None)
    assert Checkpoints(str(tmp_path / "run")).newest_step() == 5
