"""Data of trials and students, from their files to the leaderboard's rankings.

pytest tests/orchestrator/kinds/test_trial_data.py
"""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.results import DistillResult, SweepResult
from orchestrator.base.settings import Settings
from orchestrator.finetuning import distillation_launch as launch
from orchestrator.finetuning import sweep as sweep_module
from orchestrator.kinds.distill import DistillKind
from orchestrator.kinds.sweep import SweepKind
from orchestrator.registry.recorder import Recorder
from orchestrator.specs import DistillSpec, SweepSpec
from tests.orchestrator.kinds.contexts import carry_out
from tests.orchestrator.kinds.samples import TRIALS
from tests.orchestrator.registry.samples import model_result
from tests.orchestrator.small_specs import DISTILL, SWEEP


@pytest.fixture(autouse=True)
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweeps' trials are those of the samples; their best model has a test score where its task has test data."""

    def run_sweep(spec: SweepSpec, **arguments: Any) -> SweepResult:
        has_test = "test" in (spec.task.files or {})
        return SweepResult("own", "accuracy", TRIALS, TRIALS[1], {"accuracy": 0.7} if has_test else {})

    monkeypatch.setattr(sweep_module, "run_sweep", run_sweep)


def carry_out_sweep(
    settings: Settings, recorder: Recorder, max_validation_examples: int | None = None, **files: str
) -> str:
    """Record a sweep of two trials on the files as they are now; returns its id."""
    task = {**SWEEP["task"], "files": {**SWEEP["task"]["files"], **files}}
    task["max_validation_examples"] = max_validation_examples
    return carry_out(SweepKind(), SweepSpec.model_validate({**SWEEP, "task": task}), settings, recorder)


def test_a_row_more_to_be_scored_on_is_another_ranking(settings: Settings, recorder: Recorder) -> None:
    carry_out_sweep(settings, recorder)
    carry_out_sweep(settings, recorder)
    board = recorder.registry.leaderboard().frame()
    assert list(zip(board["rank"], board["n"], board["mean"], strict=True)) == [(1, 1, 0.9), (2, 1, 0.8)]
    Path("task.csv").write_text(Path("task.csv").read_text() + "a bird,a\n")
    carry_out_sweep(settings, recorder)
    board = recorder.registry.leaderboard().frame()
    assert list(board["rank"]) == [1, 2, 1, 2]
    assert list(board["data"].iloc[:2]) != list(board["data"].iloc[2:])
    assert board["data"].notna().all()


def test_the_test_data_of_a_sweep_are_no_part_of_a_group_and_tell_whether_their_score_may_be_shown(
    settings: Settings, recorder: Recorder
) -> None:
    Path("unseen.csv").write_text("text,label\na cow,b\n")
    for test in ("task.csv", "unseen.csv"):
        carry_out_sweep(settings, recorder, test=test)
        first = recorder.registry.leaderboard().records[0]
        assert (first["test"] is None) == (test == "task.csv"), test
    refused = "1 of 2 test scores refused: the model was trained on the test data"
    assert refused in first["notes"], "all three splits of the first sweep are one file"
    assert (first["n"], first["completed"]) == (1, 2), "one seed, in both sweeps"


def test_a_test_score_on_a_file_whose_first_examples_trials_were_chosen_on_is_refused(
    settings: Settings, recorder: Recorder
) -> None:
    Path("unseen.csv").write_text("text,label\na cow,b\na hen,a\n")
    refused = carry_out_sweep(settings, recorder, 1, validation="unseen.csv", test="unseen.csv")
    learned = carry_out_sweep(settings, recorder, 1, train="unseen.csv", test="unseen.csv", validation="task.csv")
    honest = carry_out_sweep(settings, recorder, 1, test="unseen.csv")
    assert recorder.registry.test_refusals([refused, learned, honest]) == {
        refused: "the model was chosen on at least some of the test data",
        learned: "the model was trained on the test data",
    }
    assert "data.validation_whole_digest" in recorder.registry.parameters(refused)
    assert "data.train_whole_digest" not in recorder.registry.parameters(refused), "it had no limit"


def test_a_student_is_ranked_with_the_trials_on_the_same_data(
    settings: Settings, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_distillation(spec: DistillSpec, **arguments: Any) -> DistillResult:
        scores = {"accuracy": 0.85, "teacher.accuracy": 0.9, "agreement": 0.9, "baseline.accuracy": 0.5}
        sizes = dict.fromkeys(("num_parameters", "examples_per_s", "parameter_ratio", "speed_ratio"), 1.0)
        sizes |= {"teacher.num_parameters": 2.0, "teacher.examples_per_s": 1.0}
        return DistillResult("own", "accuracy", model_result("student"), 3, scores | sizes)

    monkeypatch.setattr(launch, "run_distillation", run_distillation)
    carry_out_sweep(settings, recorder)
    run_id = carry_out(DistillKind(), DistillSpec.model_validate(DISTILL), settings, recorder)
    digests = {path for path in recorder.registry.parameters(run_id) if path.startswith("data.")}
    assert {"data.train_digest", "data.train_file_digest", "data.validation_file_digest"} <= digests
    board = recorder.registry.leaderboard().records
    assert [(row["rank"], row["kind"], row["mean"]) for row in board] == [
        (1, "sweep", 0.9), (2, "distill", 0.85), (3, "sweep", 0.8)
    ]  # fmt: skip
    assert len({row["data"] for row in board}) == 1
