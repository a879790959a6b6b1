"""The task of the run that made a model, by each name that the model goes by.

Alone: pytest tests/orchestrator/registry/test_recorded_task.py
"""

from pathlib import Path

import pytest

from orchestrator.base.results import ModelResult, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.registry.model_names import read_recorded_task
from orchestrator.registry.recorder import Recorder

TASK = {"id": "complaints"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_options(home=str(tmp_path / "home"), environ={})


def test_the_task_is_found_by_a_models_name_and_by_its_run(settings: Settings) -> None:
    with Registry(settings.registry) as registry:
        run = registry.lifecycle.create(kind="sweep", name="s", fingerprint="f" * 64, spec={"task": TASK})
        registry.models.register("mine", ModelResult("folder", "d" * 64, 1, "classification"), run)
    assert read_recorded_task("mine", settings) == TASK
    assert read_recorded_task(run, settings) == TASK


def test_a_trial_has_the_task_of_its_sweep(settings: Settings) -> None:
    with Registry(settings.registry) as registry:
        recorder = Recorder(registry)
        sweep = recorder.start(
            spec={"kind": "sweep", "name": "s", "task": TASK}, fingerprint="f" * 64, metric="accuracy"
        )
        model = ModelResult("folder", "d" * 64, 1, "classification")
        done = TrialResult("key", 0, {"learning_rate": 1.0}, RunState.COMPLETED, 0, model=model)
        (trial,) = recorder.registry.trials.record(sweep.id, [done])
    assert read_recorded_task(trial, settings) == TASK


def test_what_has_no_recorded_task_is_told_apart(settings: Settings, tmp_path: Path) -> None:
    with Registry(settings.registry) as registry:
        run = registry.lifecycle.create(kind="pretrain", name="p", fingerprint="f" * 64, spec={"kind": "pretrain"})
    (tmp_path / "config.json").write_text("{}")
    assert [read_recorded_task(name, settings) for name in (run, "nothing", str(tmp_path))] == [None] * 3
