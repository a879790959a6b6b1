"""Groups of plain processes, joined by gloo: killed and resumed, they end with the bits of an undisturbed group.

Run alone: pytest tests/orchestrator/pretraining/test_several_workers.py
"""

import signal
from functools import partial
from pathlib import Path

import pytest

from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.pretraining.several_workers import run_group
from tests.orchestrator.pretraining.small_run import final_digests


@pytest.mark.training
@pytest.mark.parametrize(("num_workers", "precision"), [(3, "fp32"), pytest.param(2, "bf16", marks=pytest.mark.slow)])
def test_a_group_of_three_that_is_killed_ends_with_the_bits_of_one_that_was_not(
    tmp_path: Path, num_workers: int, precision: str
) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    train = partial(run_group, num_workers=num_workers, changes={"gradient_precision": precision})
    assert [status for status, _ in train(straight)] == [0] * num_workers
    assert train(killed, kill_at=10)[0][0] == -signal.SIGKILL
    assert Checkpoints(str(killed / "run")).newest_step() == 10
    assert [status for status, _ in train(killed, attempt=2)] == [0] * num_workers
    assert final_digests(killed) == final_digests(straight)
