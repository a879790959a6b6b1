"""Inputs that are looked up once: what the checks have found, the run uses.

pytest tests/orchestrator/kinds/test_resolved.py
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import TaskDataError
from orchestrator.base.results import ModelResult
from orchestrator.base.settings import Settings
from orchestrator.execution.runner import run_spec
from orchestrator.kinds import kind_of, resolved, resolved_inputs
from orchestrator.kinds.plan import plan_rows
from orchestrator.registry import Registry
from orchestrator.specs import DistillSpec, EvaluateSpec, TaskSpec
from orchestrator.specs.loading import parse_spec
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.task import Task
from orchestrator.training.snapshots import Snapshots
from tests.orchestrator.small_specs import DISTILL, PRETRAIN, SWEEP, pipeline


def register(settings: Settings, folder: str, digest: str = "d" * 64) -> None:
    """Register a folder as the newest version of the model `base`."""
    with Registry(settings.registry) as registry:
        run = registry.lifecycle.create(kind="sweep", name="base", fingerprint="f" * 64, spec={})
        registry.models.register("base", ModelResult(folder, digest, 1, "classification"), run)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[TaskSpec]:
    """The tasks that have been loaded since, one by one."""
    specs: list[TaskSpec] = []

    def load(spec: TaskSpec) -> Task:
        specs.append(spec)
        return load_task(spec)

    monkeypatch.setattr(resolved, "load_task", load)
    return specs


def test_a_task_is_loaded_once_for_checks_plan_identity_and_run(settings: Settings, loaded: list[TaskSpec]) -> None:
    spec = parse_spec(pipeline(large=SWEEP, small={**DISTILL, "teacher": "@large"}))
    inputs = resolved_inputs(spec, settings)
    kind_of(spec).preflight(spec, inputs)
    plan_rows(spec, inputs)
    assert len(loaded) == 1


def test_snapshots_lie_beside_the_model_of_their_run(settings: Settings) -> None:
    shutil.copytree("short", "storage/run/model")
    Snapshots("storage/run").save(5, lambda folder: None)
    spec = parse_spec(pipeline(model={**PRETRAIN, "execution": {"snapshot_steps": [7, 3]}}, small=SWEEP))
    inputs = resolved_inputs(spec, settings)
    assert inputs.snapshots("storage/run/model") == {
        5: str(Path("storage/run/snapshots/step-00000005-attempt-1").absolute())
    }
    assert inputs.snapshots("short") == {}
    assert inputs.snapshots("@model") == {3: "@model", 7: "@model"}
    assert inputs.snapshots("@small") == {}


def test_a_version_registered_meanwhile_is_not_what_the_run_uses(settings: Settings) -> None:
    register(settings, "short")
    spec = parse_spec({**DISTILL, "teacher": "base"})
    inputs = resolved_inputs(spec, settings)
    kind_of(spec).preflight(spec, inputs)
    register(settings, "words", "e" * 64)
    pinned, anew = inputs.pin(spec), resolved_inputs(spec, settings).pin(spec)
    assert isinstance(pinned, DistillSpec)
    assert isinstance(anew, DistillSpec)
    assert (pinned.teacher, anew.teacher) == ("base@1", "base@2")
    assert inputs.folder("teacher", pinned.teacher) == str(Path("short").absolute())


def test_a_tokenizer_and_a_models_weights_are_read_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[str] = []
    checked: list[str] = []
    load = resolved.Tokenizer.load

    def note(folder: Any) -> Any:
        folders.append(str(folder))
        return load(folder)

    monkeypatch.setattr(resolved.Tokenizer, "load", note)
    monkeypatch.setattr(resolved, "check_weights", checked.append)
    start = {**PRETRAIN, "init_from": "short", "phases": [{"max_seq_length": 40}]}
    spec = parse_spec(pipeline(one=start, two={**start, "seed": 1}))
    inputs = resolved_inputs(spec, settings)
    kind_of(spec).preflight(spec, inputs)
    plan_rows(spec, inputs)
    assert [Path(folder).name for folder in folders] == ["words", "short", "short"]
    assert [Path(folder).name for folder in checked] == ["short"]


def test_the_examples_of_a_pipelines_tasks_are_not_held_together(settings: Settings) -> None:
    spec = parse_spec(pipeline(one=SWEEP, two={**SWEEP, "seeds": [1]}))
    inputs = resolved_inputs(spec, settings)
    plan_rows(spec, inputs)
    task = inputs.task(TaskSpec.model_validate(SWEEP["task"]))
    Path("task.csv").unlink()
    with pytest.raises(TaskDataError, match="cannot be read"):
        task.examples("train")


def test_a_run_uses_the_task_that_its_check_has_loaded(
    settings: Settings, loaded: list[TaskSpec], encoder: str, collection: TaskSpec, no_cluster: None
) -> None:
    record = run_spec(EvaluateSpec(model=encoder, task=collection, gpus=0), settings=settings)
    assert (record.state, len(loaded)) == ("COMPLETED", 1)
