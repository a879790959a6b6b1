"""Stages of a pipeline: which are used again, gone on with, or begun anew; nothing is trained.

Run alone: pytest tests/orchestrator/kinds/test_pipeline.py
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from orchestrator.base.settings import Settings
from orchestrator.kinds import kind_of, resolved_inputs
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.records import RunRecord
from orchestrator.specs import Spec
from orchestrator.specs.loading import parse_spec, spec_values
from orchestrator.training.checkpoints import Checkpoints, delete_checkpoints
from tests.orchestrator.kinds.contexts import Notebook, context_of
from tests.orchestrator.small_specs import PRETRAIN, SWEEP, pipeline


@dataclass
class Pipelines:
    """Attempts at pipelines whose stages complete at once, or are interrupted."""

    settings: Settings
    recorder: Recorder
    are_interrupted: bool = False
    done: list[str] = field(default_factory=list)
    """Stages that the latest attempt started or resumed, in order: `start all/pre`."""

    def attempt(self, run_id: str | None = None, **stages: dict[str, Any]) -> str:
        """Make an attempt at a pipeline, a new one without an id; returns its id."""
        spec = parse_spec(pipeline(**stages))
        run_id = run_id or self.recorder.start(spec_values(spec), spec.fingerprint()).id
        context = context_of(self.settings, Notebook(), run_id=run_id, recorder=self.recorder, stages=self)
        self.done.clear()
        with suppress(KeyboardInterrupt):
            kind_of(spec).run(spec, resolved_inputs(spec, self.settings), context)
        return run_id

    def start(self, spec: Spec, tags: Sequence[str] = ()) -> RunRecord:
        folder = f"{self.settings.storage}/runs/{len(self.recorder.registry.run_ids())}"
        values = spec_values(spec) | {"tags": [*spec.tags, *tags]}
        return self._work("start", self.recorder.start(values, spec.fingerprint(), storage_path=folder))

    def resume(self, record: RunRecord, spec: Spec) -> RunRecord:
        return self._work("resume", self.recorder.resume(record.id))

    def _work(self, how: str, run: RunRecord) -> RunRecord:
        self.done.append(f"{how} {run.name}")
        if self.are_interrupted:
            self.recorder.fail(run.id, KeyboardInterrupt())
            raise KeyboardInterrupt
        self.recorder.complete(run.id, RunOutcome(model_folder="short"))
        return self.recorder.registry.run(run.id)

    def latest(self, name: str) -> RunRecord:
        """The newest run of a stage."""
        return self.recorder.registry.find_records(f"name = '{name}'")[0]


@pytest.fixture
def pipelines(settings: Settings, recorder: Recorder) -> Pipelines:
    return Pipelines(settings, recorder)


def pretrain(**values: Any) -> dict[str, Any]:
    return {**PRETRAIN, "precision": "fp32", "sentence_objective": "none", **values}


SNAPSHOTS = [pretrain(execution={"snapshot_steps": steps}) for steps in ([], [5], [5, 10])]
STATES = [pretrain(execution={"snapshot_steps": [5], "snapshot_optimizer": kept}) for kept in (False, True, False)]
HOURS = [pretrain(steps="auto", execution={"max_hours": hours}) for hours in (1.0, 2.0, 4.0)]


@pytest.mark.parametrize("stages", [SNAPSHOTS, STATES, HOURS], ids=["snapshots", "states", "hours"])
def test_an_interrupted_stage_goes_on_with_other_snapshots_and_hours(
    pipelines: Pipelines, stages: list[dict[str, Any]]
) -> None:
    pipelines.are_interrupted = True
    first, *others, last = stages
    run_id = pipelines.attempt(pre=first)
    for stage in others:
        pipelines.attempt(run_id, pre=stage)
        assert pipelines.done == ["resume all/pre"]
    pipelines.are_interrupted = False
    pipelines.attempt(run_id, pre=last)
    assert pipelines.done == ["resume all/pre"]
    pipelines.attempt(run_id, pre=last)
    assert pipelines.done == []
    pipelines.attempt(pre=last)
    assert pipelines.done == ["start all/pre"], "it stands for no other pipeline's stage"


@pytest.mark.parametrize("stages", [SNAPSHOTS, STATES, HOURS], ids=["snapshots", "states", "hours"])
def test_a_completed_stage_stands_for_none_with_other_snapshots_or_hours(
    pipelines: Pipelines, stages: list[dict[str, Any]]
) -> None:
    for stage in stages[:2]:
        run_id = pipelines.attempt(pre=stage)
        assert pipelines.done == ["start all/pre"]
        pipelines.attempt(run_id, pre=stage)
        assert pipelines.done == []


def test_hours_that_do_not_decide_the_steps_tell_no_stages_apart(pipelines: Pipelines) -> None:
    for hours, done in ((1.0, ["start all/pre"]), (2.0, [])):
        pipelines.attempt(pre=pretrain(execution={"max_hours": hours}))
        assert pipelines.done == done


def test_an_interrupted_stage_begins_anew_where_its_files_have_changed(
    pipelines: Pipelines, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    pipelines.are_interrupted = True
    run_id = pipelines.attempt(pre=pretrain())
    assert not caplog.records
    with open("corpus.txt", "a") as file:
        file.write("more\n")
    pipelines.attempt(run_id, pre=pretrain())
    assert pipelines.done == ["start all/pre"]
    assert "all/pre" in caplog.text


def test_a_completed_stage_is_done_again_where_a_training_state_that_is_wanted_is_gone(pipelines: Pipelines) -> None:
    pipelines.attempt(pre=pretrain())
    folder, model = str(pipelines.latest("all/pre").storage_path), torch.nn.Linear(1, 1)
    Checkpoints(folder).save(10, model, torch.optim.AdamW(model.parameters()), {})
    more = pretrain(init_from="@pre", init_step=10, steps=20)
    pipelines.attempt(pre=pretrain(), more=more)
    assert pipelines.done == ["start all/more"]
    delete_checkpoints(folder)
    pipelines.attempt(pre=pretrain(), other=pretrain(init_from="@pre"))
    assert pipelines.done == ["start all/other"]
    pipelines.attempt(pre=pretrain(), more=more)
    assert pipelines.done[0] == "start all/pre"


def test_stages_that_are_completed_take_no_disk(settings: Settings) -> None:
    settings.home.mkdir()
    stages = {"pre": pretrain(), "tune": {**SWEEP, "recipe": {"init_from": "@pre", "precision": "fp32"}}}

    def num_bytes() -> int:
        spec = parse_spec(pipeline(**stages))
        return sum(use.num_bytes for use in kind_of(spec).disk(spec, resolved_inputs(spec, settings)))

    with Registry(settings.registry) as registry:
        pipelines, both = Pipelines(settings, Recorder(registry)), num_bytes()
        pipelines.attempt(pre=stages["pre"])
        assert 0 < num_bytes() < both
        pipelines.attempt(**stages)
        assert num_bytes() == 0
