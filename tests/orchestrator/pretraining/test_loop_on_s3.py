"""A whole pretraining, below Ray, whose text, checkpoints and model lie on an S3 server.

Run alone: pytest tests/orchestrator/pretraining/test_loop_on_s3.py
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import storage
from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.pretraining.small_run import final_digests, make_job, run
from tests.orchestrator.s3_server import new_s3_root

pytestmark = pytest.mark.training


def test_a_killed_run_resumes_on_s3_to_the_bits_of_a_local_one(
    s3_server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(tmp_path / "cache"))
    run(make_job(tmp_path), lambda event: None)
    root = new_s3_root()
    command = [sys.executable, "-m", "tests.orchestrator.pretraining.small_run", root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | s3_server) as child:
        assert child.stdout is not None
        while "CheckpointEvent 10" not in (line := child.stdout.readline()):
            assert line, "the run has ended"
        child.kill()
    assert Checkpoints(storage.join(root, "run")).newest_first()[0].step >= 10
    run(make_job(root, attempt=2), lambda event: None)
    assert final_digests(root) == final_digests(tmp_path)
    folders = storage.names_in(storage.join(root, "run", "checkpoints"))
    named = Checkpoints(storage.join(root, "run")).newest_first()
    assert folders == sorted(event.path.rpartition("/")[2] for event in named), "no half folder stays"
