"""Checkpoints that cannot be deleted, those of a newer version, and those that the storage does not give just now.

pytest tests/orchestrator/training/test_checkpoints.py
"""

import errno
from pathlib import Path

import pytest
import torch
from torch import nn

from bert_core.checkpoints import training_state
from bert_core.errors import CheckpointError, NewerFormatError
from orchestrator.storage import delete
from orchestrator.training import checkpoints
from orchestrator.training.checkpoints import Checkpoints, delete_checkpoints


@pytest.fixture
def model() -> nn.Linear:
    return nn.Linear(2, 2)


@pytest.fixture
def optimizer(model: nn.Linear) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters())


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Folders that cannot be deleted, as on NFS where a file in them is open; undoing the patch lets them go."""

    def refuse(path: str) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty", path)

    monkeypatch.setattr(checkpoints, "delete", refuse)
    return monkeypatch


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_an_old_checkpoint_that_cannot_be_deleted_is_a_warning_and_goes_at_the_next_start(
    tmp_path: Path, model: nn.Linear, optimizer: torch.optim.AdamW, stubborn: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    saved = Checkpoints(str(tmp_path), keep=1)
    for step in (1, 2):
        event = saved.save(step, model, optimizer, {"step": step}, warnings.append)
    assert [event] == saved.newest_first()
    (warning,) = warnings
    assert "step-00000001-attempt-1" in warning
    assert "Directory not empty" in warning
    assert names(tmp_path) == ["step-00000001-attempt-1", "step-00000002-attempt-1"]

    again = Checkpoints(str(tmp_path), attempt=2, keep=1)
    again.tidy(warnings.append)  # it still cannot be deleted
    assert len(warnings) == 2
    stubborn.setattr(checkpoints, "delete", delete)
    again.tidy(warnings.append)
    assert names(tmp_path) == ["step-00000002-attempt-1"]
    found = again.read_newest(warnings.append)
    assert found is not None
    assert found[1].extra == {"step": 2}
    assert len(warnings) == 2


def test_a_run_that_has_ended_stays_so_where_its_checkpoints_cannot_be_deleted(
    tmp_path: Path,
    model: nn.Linear,
    optimizer: torch.optim.AdamW,
    stubborn: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    Checkpoints(str(tmp_path)).save(1, model, optimizer, {})
    delete_checkpoints(str(tmp_path))
    assert "cannot be deleted" in caplog.text


def test_a_checkpoint_of_a_newer_version_is_not_passed_over_for_an_older_one(
    tmp_path: Path, model: nn.Linear, optimizer: torch.optim.AdamW, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    saved = Checkpoints(str(tmp_path))
    saved.save(1, model, optimizer, {})
    with monkeypatch.context() as newer:
        newer.setattr(training_state, "_FORMAT", 2)
        saved.save(2, model, optimizer, {})
    with pytest.raises(NewerFormatError, match="step-00000002"):
        saved.read_newest(warnings.append)
    assert warnings == []


@pytest.mark.parametrize("is_older_one_damaged", [False, True])
def test_checkpoints_that_the_storage_does_not_give_just_now_are_not_called_damaged(
    tmp_path: Path,
    model: nn.Linear,
    optimizer: torch.optim.AdamW,
    monkeypatch: pytest.MonkeyPatch,
    is_older_one_damaged: bool,
) -> None:
    saved = Checkpoints(str(tmp_path))
    for step in (1, 2):
        saved.save(step, model, optimizer, {})

    def fail(path: str) -> Path:
        if is_older_one_damaged and "step-00000001" in path:
            raise CheckpointError(f"{path} is altered")
        raise OSError(errno.ESTALE, "Stale file handle", path)

    monkeypatch.setattr(checkpoints, "local_copy", fail)
    warnings: list[str] = []
    with pytest.raises(OSError, match=r"Stale file handle.*step-00000002"):
        saved.read_newest(warnings.append)
    assert [warning.split(" is ")[0] for warning in warnings] == ["checkpoint of step 2", "checkpoint of step 1"]
