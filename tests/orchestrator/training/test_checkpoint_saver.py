"""Checkpoints that are written while training goes on.

Run alone: pytest tests/orchestrator/training/test_checkpoint_saver.py
"""

import errno
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from orchestrator.results import CheckpointEvent
from orchestrator.training.checkpoint_saver import CheckpointSaver
from orchestrator.training.checkpoints import Checkpoints
from tests.waiting import PATIENCE_S


class Training:
    """A model of four numbers that changes with each step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(2, 2)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(1, 2)).square().sum().backward()
        self.optimizer.step()


class HeldWriter(Checkpoints):
    """Checkpoints whose writer waits to be let go."""

    may_write = threading.Event()

    def write(self, *arguments: Any) -> CheckpointEvent:
        assert self.may_write.wait(PATIENCE_S)
        return super().write(*arguments)


@pytest.fixture
def held(tmp_path: Path) -> HeldWriter:
    HeldWriter.may_write.clear()
    return HeldWriter(str(tmp_path / "run"))


def test_a_checkpoint_is_that_of_its_step_and_named_when_it_is_complete(tmp_path: Path, held: HeldWriter) -> None:
    training, saver = Training(), CheckpointSaver(held, in_background=True)
    extra = {"sizes": [3, 4]}
    at_once = Checkpoints(str(tmp_path / "at_once")).save(1, training.model, training.optimizer, extra)
    saver.save(1, training.model, training.optimizer, extra)
    training.step()
    assert saver.take() is None
    assert held.newest_first() == []
    held.may_write.set()
    saved = saver.take(wait=True)
    assert saved is not None
    assert saved.event == held.newest_first()[0]
    assert saved.event.digest == at_once.digest
    assert saver.take(wait=True) is None


def test_a_write_that_fails_is_raised_when_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> CheckpointEvent:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Checkpoints, "write", fail)
    training = Training()
    saver = CheckpointSaver(Checkpoints(str(tmp_path)), in_background=True)
    saver.save(1, training.model, training.optimizer, {})
    with pytest.raises(OSError, match="No space left"):
        saver.take(wait=True)
    assert saver.take(wait=True) is None
    at_once = CheckpointSaver(Checkpoints(str(tmp_path)), in_background=False)
    with pytest.raises(OSError, match="No space left"):
        at_once.save(1, training.model, training.optimizer, {})


def test_a_failure_beside_another_error_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> CheckpointEvent:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Checkpoints, "write", fail)
    training = Training()
    saver = CheckpointSaver(Checkpoints(str(tmp_path)), in_background=True)
    saver.save(1, training.model, training.optimizer, {})
    saver.settle()
    assert "the checkpoint that was being written failed: [Errno 5]" in caplog.text
    assert saver.take(wait=True) is None
