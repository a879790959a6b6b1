"""A run on a cluster that has no worker yet: it waits for what its autoscaler starts, and is refused what that cannot.

Run alone: pytest tests/orchestrator/execution/test_autoscaling.py
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.runs
def test_a_run_goes_from_no_worker_to_its_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.orchestrator.execution.run_from_zero", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = json.loads(next(line for line in ended.stdout.splitlines() if line.startswith("{")))
    assert found["refused"].startswith(
        "2 processes are asked, each with 4 CPUs on one node; the cluster has room for 0, with all nodes that its "
        "autoscaler may start. Lower execution.num_workers or"
    )
    assert "\n" not in found["refused"]
    asked = r"asked, (none free on any node|room for 1 now); autoscaler: starting \d × (small|with_gpu)"
    assert any(re.fullmatch(rf"waiting: \d × \(\d CPU\) {asked}", line) for line in found["lines"]), found["lines"]
    assert (found["before"], found["state"], found["after"]) == (1, "COMPLETED", 3)
