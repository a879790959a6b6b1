"""A pretraining that is asked to stop saves a checkpoint after any step, and goes on as if nothing had been; no Ray.

Run alone: pytest tests/orchestrator/pretraining/test_stopping.py
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.measurements import is_of_the_machine
from orchestrator.results import Event, MetricEvent
from orchestrator.storage import digest_file, read_json
from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.pretraining.small_run import make_job, run
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.training

RARELY = {"execution": {"checkpoint_every_steps": 12, "log_every_steps": 6, "evaluate_every_steps": 8}}


def final_digests(folder: Path) -> list[str]:
    """SHA-256 of weights and optimizer after the last step."""
    newest = Checkpoints(str(folder / "run")).newest_first()[0]
    assert newest.step == 24
    return [digest_file(f"{newest.path}/{name}.safetensors") for name in ("model", "optimizer")]


def measured(events: list[Event]) -> dict[tuple[int, str], dict[str, float]]:
    """Measurements by step and split, but for those of the machine."""
    return {
        (event.step, event.split): {name: v for name, v in event.values.items() if not is_of_the_machine(name)}
        for event in events
        if isinstance(event, MetricEvent)
    }


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[tuple[int, str], dict[str, float]]]:
    """Digests and measurements of a run that nothing stops."""
    folder = tmp_path_factory.mktemp("straight")
    events: list[Event] = []
    run(make_job(folder, **RARELY), events.append)
    return final_digests(folder), measured(events)


@pytest.mark.parametrize("asked_after", [4, 7, 22])
def test_a_stopped_run_ends_with_the_bits_and_measurements_of_one_that_was_not(
    tmp_path: Path, straight: tuple[list[str], dict[tuple[int, str], dict[str, float]]], asked_after: int
) -> None:
    events: list[Event] = []
    run(make_job(tmp_path, **RARELY), events.append, note_step=lambda step: step >= asked_after)
    assert Checkpoints(str(tmp_path / "run")).newest_first()[0].step == asked_after + 1
    run(make_job(tmp_path, attempt=2, **RARELY), events.append)
    assert (final_digests(tmp_path), measured(events)) == straight


def test_a_run_that_is_asked_at_its_last_step_completes(tmp_path: Path) -> None:
    loop = run(make_job(tmp_path, **RARELY), lambda event: None, note_step=lambda step: step == 23)
    assert Checkpoints(str(tmp_path / "run")).newest_first()[0].step == 24
    assert loop.train(lambda first_step: iter(())), "nothing is left to do"


@pytest.mark.core
def test_all_workers_stop_after_the_same_step_where_one_is_asked(tmp_path: Path) -> None:
    make_job(tmp_path)
    digests = {}
    for name, stop_after in (("stopped", 7), ("resumed", None), ("straight", None)):
        folder = tmp_path / ("straight" if name == "straight" else "stopped")
        assert run_two(folder, stop_after, attempt=2 if name == "resumed" else 1) == [name != "stopped"] * 2
        newest = Checkpoints(str(folder / "run")).newest_first()[0]
        digests[name] = [digest_file(f"{newest.path}/{part}.safetensors") for part in ("model", "optimizer")]
        if name == "stopped":
            assert newest.step == 8
            assert len(read_json(f"{newest.path}/state.json")["extra"]["meter"]["totals"]) == 2
    assert digests["resumed"] == digests["straight"]


def run_two(folder: Path, stop_after: int | None, attempt: int) -> list[bool]:
    """Train with two workers in processes of their own; returns whether each of them completed the training."""
    folder.mkdir(exist_ok=True)
    make_job(folder)
    command = [sys.executable, "-m", "tests.orchestrator.pretraining.several_workers", str(folder)]
    changes = {"execution": {"num_workers": 2, "log_every_steps": 6}}
    order = json.dumps({"num_workers": 2, "attempt": attempt, "stop_after": stop_after, "changes": changes})
    workers = [subprocess.Popen([*command, str(rank), order], stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    outputs = [worker.communicate(timeout=PATIENCE_S)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    return [json.loads(output.splitlines()[-1]) for output in outputs]
