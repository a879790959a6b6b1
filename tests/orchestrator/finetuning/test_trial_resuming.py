"""Trials go on after a kill with the same bits. Alone: pytest tests/orchestrator/finetuning/test_trial_resuming.py"""

import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from torch import nn
from torch.optim import SGD

from bert_core.checkpoints import training_state
from bert_core.errors import CheckpointError
from orchestrator.base.results import TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.finetuning import trial
from orchestrator.finetuning.training_checkpoints import CheckpointedTraining, TrialCheckpoint
from orchestrator.finetuning.trial import trial_folder
from orchestrator.finetuning.trial_journal import write_leader
from orchestrator.storage import digest_file, exists, join, names_in
from orchestrator.training import checkpoints
from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.bench import Bench, Killed

RECIPE = {
    "epochs": 2.0,
    "evaluations_per_epoch": 2,
    "dropout": 0.1,
    "class_weights": "balanced",
    "head_learning_rate": 1e-3,
    "learning_rate_schedule": "cosine",
    "decay_ratio": 0.5,
    "optimizer": "muon",
    "adam_betas": (0.9, 0.98),
}


def weights(bench: Bench) -> str:
    return digest_file(join(bench.model_folder, "model.safetensors"))


def measured(bench: Bench) -> list[tuple[int, str, dict[str, float]]]:
    """What was reported, without speeds."""
    return [
        (event.step, event.split, {name: value for name, value in event.values.items() if name != "examples_per_s"})
        for event in bench.events
    ]


def kill(bench: Bench, number: int, **changes: object) -> None:
    """Run a trial until its evaluation of that number is reported."""
    with pytest.raises(Killed):
        bench.run(killed_at=number, **{**RECIPE, **changes})


@pytest.mark.training
@pytest.mark.core
def test_a_trial_killed_after_any_evaluation_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = Bench(tiny_tasks.classification(tmp_path / "whole"), tmp_path / "whole")
    expected = whole.run(**RECIPE)
    for number in range(1, 5):
        bench = Bench(tiny_tasks.classification(tmp_path / str(number)), tmp_path / str(number))
        kill(bench, number)
        result = bench.run(**RECIPE)
        assert replace(result, seconds=0.0, predictions_path=None) == replace(
            expected, seconds=0.0, predictions_path=None
        )
        assert weights(bench) == weights(whole)
        assert measured(bench) == measured(whole), "a registry that missed some gets them again"
        assert bench.scores == whole.scores, "a scheduler decides on the same scores"
        assert bench.num_trained_steps == 40 - 10 * (number - 1), "a checkpoint follows each report"


@pytest.mark.training
def test_a_trial_whose_checkpoint_is_damaged_begins_anew_with_a_warning(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.classification(tmp_path), tmp_path)
    kill(bench, 3)
    (file,) = Path(trial_folder(bench.job.run_folder, bench.key)).glob("checkpoints/*/model.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    assert bench.run(**RECIPE).state == RunState.COMPLETED
    assert bench.num_trained_steps == 40
    told = [message.text for message in bench.messages if message.level == "warning"]
    assert "is passed over" in told[0]
    assert re.match(r"the trial begins anew, and its checkpoints are deleted: .*model\.safetensors is altered", told[1])


@pytest.mark.training
@pytest.mark.parametrize("problem", ["a newer version", "the storage", "the start model"])
def test_a_trial_that_fails_for_another_reason_keeps_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    bench = Bench(tiny_tasks.classification(tmp_path), tmp_path)
    with monkeypatch.context() as newer:
        if problem == "a newer version":
            newer.setattr(training_state, "_FORMAT", 2)
        kill(bench, 3)
    with monkeypatch.context() as away:
        if problem == "the storage":
            away.setattr(checkpoints, "local_copy", Mock(side_effect=OSError("Stale file handle")))
        elif problem == "the start model":
            away.setattr(trial, "build_model", Mock(side_effect=CheckpointError("model.safetensors is altered")))
        assert bench.run(**RECIPE).state == RunState.FAILED
    assert names_in(join(trial_folder(bench.job.run_folder, bench.key), "checkpoints")), "the checkpoint is still there"


@pytest.mark.training
def test_only_a_trial_that_leads_writes_its_weights(tmp_path: Path) -> None:
    bench = Bench(tiny_tasks.classification(tmp_path), tmp_path)
    leader = TrialResult("other", 7, {}, RunState.COMPLETED, 0, metrics={"accuracy": 1.5})
    write_leader(bench.job.run_folder, leader, "accuracy")
    result = bench.run(epochs=0.5)
    assert result.state == RunState.COMPLETED
    assert not exists(bench.model_folder)
    assert exists(str(result.predictions_path))

    write_leader(bench.job.run_folder, replace(leader, metrics=result.metrics), "accuracy")
    bench.run(epochs=0.5)
    assert exists(bench.model_folder), "of equal scores the earlier trial leads"


def test_checkpoints_are_written_at_intervals_but_not_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now, saved = 100.0, list[float]()
    monkeypatch.setattr("orchestrator.finetuning.training_checkpoints.perf_counter", lambda: now)
    monkeypatch.setattr(CheckpointedTraining, "save", lambda *given: saved.append(now))
    checkpoint = TrialCheckpoint(Checkpoints("trial"), {}, lambda *told: None, metric="f1", interval_s=60.0)
    model = nn.Linear(1, 1)
    optimizer = SGD(model.parameters())
    for now in (130.0, 160.0, 170.0, 219.0, 220.0, 500.0):
        checkpoint.save(1, {"is_last": now == 500.0}, model, optimizer, {})
    assert saved == [160.0, 220.0]
