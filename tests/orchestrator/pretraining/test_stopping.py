"""A pretraining that is asked to stop saves a checkpoint after any step, and goes on as if nothing had been; no Ray.

Run alone: pytest tests/orchestrator/pretraining/test_stopping.py
"""

import json
from pathlib import Path

import pytest

from orchestrator.base.metric_names import is_of_the_machine
from orchestrator.base.results import Event, MetricEvent
from orchestrator.storage import digest_file, read_json
from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.pretraining.several_workers import run_group
from tests.orchestrator.pretraining.small_run import final_digests, make_job, run

pytestmark = pytest.mark.training

RARELY = {"execution": {"checkpoint_every_steps": 12, "log_every_steps": 6, "evaluate_every_steps": 8}}


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


def test_all_workers_stop_after_the_same_step_where_one_is_asked(tmp_path: Path) -> None:
    digests = {}
    changes = {"execution": {"num_workers": 2, "log_every_steps": 6}}
    for name, stop_after in (("stopped", 7), ("resumed", None), ("straight", None)):
        folder = tmp_path / ("straight" if name == "straight" else "stopped")
        ended = run_group(folder, 2, 2 if name == "resumed" else 1, stop_after=stop_after, changes=changes)
        assert [(status, json.loads(output)) for status, output in ended] == [(0, name != "stopped")] * 2
        newest = Checkpoints(str(folder / "run")).newest_first()[0]
        digests[name] = [digest_file(f"{newest.path}/{part}.safetensors") for part in ("model", "optimizer")]
        if name == "stopped":
            assert newest.step == 8
            assert len(read_json(f"{newest.path}/state.json")["extra"]["meter"]["totals"]) == 2
    assert digests["resumed"] == digests["straight"]
