"""A disk that fails while a checkpoint is saved: the one before stays good, whatever call it is that fails.

Run alone: pytest tests/orchestrator/training/test_checkpoint_disk_faults.py
"""

import errno
import os
import pathlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bert_core.checkpoints import tensor_files
from orchestrator.training.checkpoint_saver import CheckpointSaver
from orchestrator.training.checkpoints import Checkpoints

STEP_BEFORE, STEP = 5, 10


def trained(num_updates: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(num_updates):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    return model, optimizer


class FailingDisk:
    """Calls to the system that write, of which the n-th one fails."""

    def __init__(self, patched: pytest.MonkeyPatch, fail_at: int, code: int) -> None:
        self.num_calls, self._fail_at, self._code = 0, fail_at, code
        for owner, name in (
            (os, "fsync"),
            (pathlib.Path, "replace"),
            (pathlib.Path, "rename"),
            (pathlib.Path, "mkdir"),
            (pathlib.Path, "write_bytes"),
            (pathlib.Path, "touch"),
            (tensor_files, "save_file"),
        ):
            patched.setattr(owner, name, self._wrap(getattr(owner, name)))

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.num_calls += 1
            if self.num_calls == self._fail_at:
                raise OSError(self._code, os.strerror(self._code))
            return function(*args, **options)

        return call


def weights(run_folder: Path) -> tuple[int, list[float]]:
    """The step of the newest good checkpoint and its weights; no checkpoint is passed over."""
    model, optimizer = trained(0)
    warnings: list[str] = []
    loaded = Checkpoints(str(run_folder), attempt=9).read_newest(warnings.append)
    assert loaded is not None
    loaded[1].load_into(model, optimizer)
    assert warnings == []
    return loaded[0].step, [float(value) for parameter in model.parameters() for value in parameter.detach().flatten()]


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.heavy
@pytest.mark.core
def test_a_disk_that_fails_anywhere_leaves_a_good_checkpoint(code: int, in_background: bool, tmp_path: Path) -> None:
    """Fail the n-th call, n = 1, 2, 3 … until the checkpoint is saved."""
    expected = {}
    for step, num_updates in ((STEP_BEFORE, 1), (STEP, 2)):
        Checkpoints(str(tmp_path / f"{step}")).save(step, *trained(num_updates), {})
        expected[step] = weights(tmp_path / f"{step}")[1]
    outcomes = []
    for fail_at in range(1, 200):
        run_folder = tmp_path / f"run-{fail_at}"
        checkpoints = Checkpoints(str(run_folder), keep=1)
        checkpoints.save(STEP_BEFORE, *trained(1), {})
        model, optimizer = trained(2)
        with pytest.MonkeyPatch.context() as patched:
            disk = FailingDisk(patched, fail_at, code)
            try:
                saver = CheckpointSaver(checkpoints, in_background)
                saver.save(STEP, model, optimizer, {})
                saver.take(wait=True)
                outcomes.append("saved")
            except OSError as error:
                outcomes.append("failed" if error.errno == code else f"another error: {error}")
        step, found = weights(run_folder)
        assert found == expected[step]
        assert step == STEP or outcomes[-1] == "failed"
        checkpoints.tidy()
        assert [path.name for path in run_folder.rglob("*.tmp*")] == [], "nothing half written stays"
        assert len(list((run_folder / "checkpoints").iterdir())) == 1
        if disk.num_calls < fail_at:
            break
    assert set(outcomes) == {"failed", "saved"}
    assert outcomes[-1] == "saved"
    assert outcomes.count("failed") >= 8
