"""Trials that go on from another's weights: which of them, with which values, and the same bits after a kill.

Run alone: pytest tests/orchestrator/finetuning/test_legs.py
"""

from dataclasses import replace
from pathlib import Path

import pytest

from bert_core.checkpoints.training_state import TrainingState
from orchestrator.finetuning.checkpointed_training import without_history
from orchestrator.finetuning.legs import delete_leg_before, delete_legs, leg_folder
from orchestrator.finetuning.search_space import Leg, TrialPlan
from orchestrator.finetuning.trial import run_trial
from orchestrator.finetuning.trial_job import TrialJob, trial_folder
from orchestrator.results import MetricEvent, TrialResult
from orchestrator.specs import RecipeSpec
from orchestrator.storage import digest_file, exists, join, names_in
from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.bench import Bench, Killed

pytestmark = pytest.mark.training

RECIPE = {"tokenizer": "own", "epochs": 3.0, "dropout": 0.1}


def plan(number: int, learning_rate: float) -> TrialPlan:
    point = {"learning_rate": learning_rate}
    recipe = RecipeSpec.model_validate({**tiny_tasks.RECIPE.model_dump(), **RECIPE, **point, "seed": number})
    return TrialPlan(number, point, recipe, pause_after=1)


GOOD, HOPELESS = plan(0, 2e-3), plan(1, 1e-9)
VALUES = {"learning_rate": 1.6e-3, "layer_learning_rate_decay": 0.9, "weight_decay": 0.02}
RESCUED = replace(HOPELESS, pause_after=2, legs=(Leg(1, VALUES, GOOD.key),))
LAST = replace(RESCUED, pause_after=None, legs=(*RESCUED.legs, Leg(2, VALUES)))


class Events:
    """Runs plans in this process, and keeps the measurements of the last one."""

    def __init__(self, folder: Path) -> None:
        self.job: TrialJob = Bench(tiny_tasks.classification(folder), folder).job

    def run(self, plan: TrialPlan, killed_at: int | None = None) -> TrialResult | None:
        self.events: list[MetricEvent] = []

        def report(events: object, score: float | None, number: int) -> None:
            self.events += events  # type: ignore[operator]
            if number == killed_at:
                raise Killed

        return run_trial(self.job, plan, report)

    def folder(self, plan: TrialPlan) -> str:
        return trial_folder(self.job.run_folder, plan.key)

    def scores(self) -> list[float]:
        return [event.values["accuracy"] for event in self.events if event.split == "validation"]


@pytest.fixture
def compared(tmp_path: Path) -> Events:
    """Two trials that have come to their first comparison."""
    events = Events(tmp_path)
    assert [events.run(each) for each in (GOOD, HOPELESS)] == [None, None]
    return events


def test_a_hopeless_trial_is_rescued_and_keeps_its_own_measurements(compared: Events) -> None:
    own = compared.scores()
    assert compared.run(RESCUED) is None
    assert compared.scores()[0] == own[0]
    result = compared.run(LAST)
    assert result is not None
    assert result.state == "COMPLETED", result.error
    assert result.metrics["accuracy"] == max(compared.scores()) > 0.9 > own[0]
    assert result.parameters["learning_rate"] == 1e-9, "those that it began with"
    assert {name: result.metrics[f"recipe.{name}"] for name in VALUES} == VALUES
    rates = [event.values.get("recipe.learning_rate") for event in compared.events if event.split == "train"]
    assert rates == [None, 1.6e-3, 1.6e-3]


def test_a_part_begins_with_the_donors_weights_and_moments(compared: Events) -> None:
    still = replace(RESCUED, legs=(Leg(1, {"learning_rate": 1e-30, "weight_decay": 0.0}, GOOD.key),))
    compared.run(still)
    (_, donor), (_, member) = (
        Checkpoints(folder).read_newest(print)  # type: ignore[misc]
        for folder in (compared.folder(GOOD), leg_folder(compared.folder(HOPELESS), 1))
    )
    present = [name for name in donor.weights if name.startswith("0.")]
    assert all(donor.weights[name].equal(member.weights[name]) for name in present)
    assert {float(value) for name, value in member.optimizer_tensors.items() if name.endswith("step")} == {40.0}
    assert member.extra["identity"]["the leg"]["donor"] == GOOD.key


def test_a_trial_that_diverged_goes_on_as_a_copy_without_a_past(compared: Events) -> None:
    diverged = compared.run(plan(2, 1e30))
    assert diverged is not None
    assert (diverged.state, diverged.diverged) == ("FAILED", True)
    copied = replace(plan(2, 1e30), pause_after=None, legs=(Leg(1, VALUES, GOOD.key, is_copy=True),))
    with pytest.raises(Killed):
        compared.run(copied, killed_at=2)
    result = compared.run(copied)
    assert result is not None
    assert result.state == "COMPLETED", result.error
    assert len(compared.scores()) == 2, "the first evaluation was the donor's"
    assert result.metrics["accuracy"] == max(compared.scores()) > 0.9
    assert result.metrics["recipe.learning_rate"] == 1.6e-3, "nothing of it was measured with what made it diverge"


def test_a_trial_killed_in_any_part_ends_with_the_same_bits(compared: Events, tmp_path: Path) -> None:
    whole = Events(tmp_path / "whole")
    for each in (GOOD, HOPELESS, RESCUED):
        whole.run(each)
    expected = whole.run(LAST)
    for each, number in ((RESCUED, 1), (RESCUED, 2), (LAST, 3)):
        with pytest.raises(Killed):
            compared.run(each, killed_at=number)
        result = compared.run(each)
    without_folders = {"seconds": 0.0, "predictions_path": None}
    assert result is not None
    assert expected is not None
    assert replace(result, **without_folders) == replace(expected, **without_folders)
    files = [join(each.folder(LAST), "model/model.safetensors") for each in (compared, whole)]
    assert digest_file(files[0]) == digest_file(files[1])


def test_checkpoints_of_another_decision_are_not_gone_on_from(compared: Events) -> None:
    compared.run(RESCUED)
    other = replace(RESCUED, legs=(Leg(1, {"learning_rate": 2e-3}, GOOD.key),))
    compared.run(other)
    assert compared.events[-2].values["recipe.learning_rate"] == 2e-3, "the part began again"


def test_a_part_whose_beginning_is_gone_fails_by_name(compared: Events) -> None:
    delete_legs(compared.folder(GOOD))
    result = compared.run(RESCUED)
    assert result is not None
    assert "the checkpoint that trials go on from is gone" in str(result.error)


def test_parts_are_deleted_one_by_one_and_together(compared: Events) -> None:
    folder = compared.folder(HOPELESS)
    compared.run(RESCUED)
    delete_leg_before(folder, HOPELESS)
    assert exists(join(folder, "checkpoints.json"))
    delete_leg_before(folder, RESCUED)
    assert names_in(folder) == ["legs"]
    assert compared.run(RESCUED) is None, "it has come to the comparison"
    delete_legs(folder)
    assert names_in(folder) == []


def test_a_copy_goes_on_with_the_micro_batches_of_the_donor() -> None:
    snapshot = {"is_last": True, "num_bad_evaluations": 2, "best": {"score": 0.9}, "micro_batch_size": 4}
    donor = TrainingState(
        weights={}, optimizer_tensors={}, param_groups=[], extra={"snapshot": snapshot, "reported": [1]}, folder=Path()
    )
    assert without_history(donor).extra == {
        "snapshot": {"is_last": False, "num_bad_evaluations": 0, "best": {}, "micro_batch_size": 4},
        "reported": [],
    }
