"""Groups of plain processes, joined by gloo: killed and resumed, they end with the bits of an undisturbed group.

Run alone: pytest tests/orchestrator/pretraining/test_several_workers.py
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.storage import digest_file
from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.pretraining.small_run import make_job
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.training

KILL_AT = 10


def run_group(folder: Path, num_workers: int, attempt: int = 1, **order: Any) -> list[int]:
    """Train as a group of processes; returns their exit statuses, of which the first alone counts where it is killed.

    Where one has died the others cannot go on: gloo tells them, or they are killed here.
    """
    make_job(folder)  # the store is there before several processes open it
    values = json.dumps({"num_workers": num_workers, "attempt": attempt, **order})
    command = [sys.executable, "-m", "tests.orchestrator.pretraining.several_workers", str(folder)]
    workers = [
        subprocess.Popen([*command, str(rank), values], stderr=subprocess.PIPE if order.get("kill_at") else None)
        for rank in range(num_workers)
    ]
    statuses = [workers[0].wait(PATIENCE_S)]
    for worker in workers[1:]:
        if statuses[0]:
            worker.kill()
        worker.communicate(timeout=PATIENCE_S)
        statuses.append(worker.returncode)
    if workers[0].stderr:
        workers[0].stderr.close()
    return statuses


def final_digests(folder: Path) -> list[str]:
    """SHA-256 of weights and optimizer after the last step."""
    newest = Checkpoints(str(folder / "run")).newest_first()[0]
    assert newest.step == 24
    return [digest_file(f"{newest.path}/{name}.safetensors") for name in ("model", "optimizer")]


def killed_and_straight(folder: Path, num_workers: int, **order: Any) -> tuple[list[str], list[str]]:
    """Final digests of a group that is killed and resumed, and of one that nothing disturbs."""
    straight, killed = folder / "straight", folder / "killed"
    assert run_group(straight, num_workers, **order) == [0] * num_workers
    assert run_group(killed, num_workers, kill_at=KILL_AT, **order)[0] == -signal.SIGKILL
    assert Checkpoints(str(killed / "run")).newest_step() == KILL_AT
    assert run_group(killed, num_workers, attempt=2, **order) == [0] * num_workers
    return final_digests(killed), final_digests(straight)


@pytest.mark.parametrize(("num_workers", "precision"), [(3, "fp32"), pytest.param(2, "bf16", marks=pytest.mark.slow)])
@pytest.mark.core
def test_a_group_of_three_that_is_killed_ends_with_the_bits_of_one_that_was_not(
    tmp_path: Path, num_workers: int, precision: str
) -> None:
    killed, straight = killed_and_straight(tmp_path, num_workers, changes={"gradient_precision": precision})
    assert killed == straight
