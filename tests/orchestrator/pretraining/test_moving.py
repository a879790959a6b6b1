"""Training workers whose nodes are lost, on a cluster of three nodes of this machine: nothing is lost, all is told.

Run alone: pytest tests/orchestrator/pretraining/test_moving.py
"""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S


@pytest.mark.ray
@pytest.mark.training
@pytest.mark.slow
def test_workers_move_from_lost_nodes_and_take_the_head_where_no_other_is_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.orchestrator.pretraining.moves_on_cluster", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = json.loads(next(line for line in ended.stdout.splitlines() if line.startswith("{")))

    assert found["groups"] == [["first", "second"], ["first", "first"], ["head", "head"]]
    assert found["digests"][0] == found["digests"][1]
    lines, host = "\n".join(found["lines"]), socket.gethostname()
    steps = [int(step.replace(",", "")) for step in re.findall(rf"starting again from step (\S+) on {host}", lines)]
    assert len(steps) == 2, lines
    assert 0 < steps[0] <= steps[1]
    assert (
        len(re.findall(rf"training worker \d on {host} failed: its host (?:was lost|does not answer)", lines)) == 2
    ), lines
