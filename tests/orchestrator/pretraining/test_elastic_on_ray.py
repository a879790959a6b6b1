"""Runs on Ray while nodes join and are lost: wider, then narrower, elsewhere; nothing is lost, all is told.

Run alone: pytest tests/orchestrator/pretraining/test_elastic_on_ray.py
"""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.pretraining.elastic_run import CHECKPOINT_EVERY, STEPS
from tests.waiting import PATIENCE_S


def told_by(module: str, folder: Path) -> Any:
    """What a program of this folder, with a cluster of its own, has found."""
    command = [sys.executable, "-m", f"tests.orchestrator.pretraining.{module}", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


@pytest.mark.ray
@pytest.mark.training
@pytest.mark.slow
def test_a_run_grows_with_a_node_and_goes_on_without_it_on_the_batches_of_a_run_that_nothing_disturbs(
    tmp_path: Path,
) -> None:
    found = told_by("elastic_cluster", tmp_path)
    straight, elastic = found["straight"], found["elastic"]
    assert (straight["state"], elastic["state"]) == ("COMPLETED", "COMPLETED")
    assert [len(group["hosts"]) for group in elastic["workers"]] == [2, 3, 2]
    begun, grown, lost = (group["first_step"] for group in elastic["workers"])
    assert begun == 0 < grown <= lost < STEPS
    assert grown % CHECKPOINT_EVERY == lost % CHECKPOINT_EVERY == 0, "steps since the last checkpoint are trained again"
    assert len(straight["batches"]) == STEPS
    assert elastic["batches"] == straight["batches"]
    for group in elastic["workers"]:
        assert f"from step {group['first_step']} on: {len(group['hosts'])} workers on " in elastic["log"]
    assert elastic["log"].count(" failed: ") == 1, "a group that Ray ends for a wider one has not failed"


@pytest.mark.ray
@pytest.mark.training
@pytest.mark.slow
def test_workers_move_from_lost_nodes_and_take_the_head_where_no_other_is_left(tmp_path: Path) -> None:
    found = told_by("moves_on_cluster", tmp_path)
    assert found["groups"] == [["first", "second"], ["first", "first"], ["head", "head"]]
    assert found["digests"][0] == found["digests"][1]
    lines, host = "\n".join(found["lines"]), socket.gethostname()
    steps = [int(step.replace(",", "")) for step in re.findall(rf"starting again from step (\S+) on {host}", lines)]
    assert len(steps) == 2, lines
    assert 0 < steps[0] <= steps[1]
    lost = re.findall(rf"training worker \d on {host} failed: its host (?:was lost|does not answer)", lines)
    assert len(lost) == 2, lines
