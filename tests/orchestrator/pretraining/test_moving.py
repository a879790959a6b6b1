"""Training workers whose nodes go, on a cluster of three nodes of this machine: nothing is lost, all is told.

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
def test_workers_leave_a_drained_node_and_take_the_head_where_no_other_is_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.orchestrator.pretraining.moves_on_cluster", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = json.loads(next(line for line in ended.stdout.splitlines() if line.startswith("{")))

    assert found["groups"] == [["first", "second"], ["first", "first"], ["head", "head"]]
    assert found["digests"][0] == found["digests"][1]
    lines, host = "\n".join(found["lines"]), socket.gethostname()
    assert re.search(rf"node {host} is being drained \([45]:\d\d min left\): a checkpoint after this step", lines)
    steps = [int(step.replace(",", "")) for step in re.findall(rf"starting again from step (\S+) on {host}", lines)]
    assert len(steps) == 2, lines
    assert steps[0] == steps[1] > 0, "what was killed had saved nothing beyond the drained group's checkpoint"
    assert re.search(rf"training worker \d on {host} failed: its host (was lost|does not answer)", lines), lines
