"""An elastic run on Ray while a node joins the cluster and is lost: wider, then narrower, on the same batches.

Run alone: pytest tests/orchestrator/pretraining/test_elastic_on_ray.py
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.orchestrator.pretraining.elastic_run import CHECKPOINT_EVERY, STEPS
from tests.waiting import PATIENCE_S


@pytest.mark.ray
@pytest.mark.training
@pytest.mark.slow
def test_a_run_grows_with_a_node_and_goes_on_without_it_on_the_batches_of_a_run_that_nothing_disturbs(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "tests.orchestrator.pretraining.elastic_cluster", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
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
