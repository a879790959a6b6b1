"""Runs that want the same resources of a cluster, one after the other: on a Ray head of this machine.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_queueing.py
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.cluster.queue_places import SILENT_S
from tests.orchestrator.execution.job_cluster import ROOT
from tests.orchestrator.execution.ray_head import RayHead
from tests.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.slow]
HOLDER = """
import sys, time
import ray
from orchestrator.cluster.run_queue import connected_queue

ray.init(address=sys.argv[1], namespace="orchestrator", log_to_driver=False)
with connected_queue().place("holder", 1, {"CPU": 4.0}, print):
    print("at work", flush=True)
    time.sleep(3600)
"""


class Laboratory:
    """Commands of a person who has the address of the head's dashboard."""

    def __init__(self, head: RayHead, folder: Path) -> None:
        self._head, self._folder = head, folder
        (folder / "words.txt").write_text("a tokenizer learns from words like these\n\n" * 300)
        (folder / "words.yaml").write_text("kind: tokenizer\ncorpus: {files: [words.txt]}\nvocab_size: 120\n")

    def orchestrator(self, *arguments: str) -> str:
        """Output of a command that ends well."""
        done = subprocess.run(
            ["orchestrator", "--home", str(self._folder / "home"), "--address", self._head.address, *arguments],
            env=self._head.environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, *options: str) -> str:
        """Id of a run that was submitted."""
        return self.orchestrator("submit", "words.yaml", "--no-wait", *options).strip()

    def states(self) -> dict[str, str]:
        """State of each run."""
        return {run["id"]: run["state"] for run in json.loads(self.orchestrator("runs", "list", "-f", "json") or "[]")}

    @contextmanager
    def all_cpus_taken(self) -> Iterator["subprocess.Popen[str]"]:
        """A driver whose run takes all CPUs of the head."""
        environment = {**self._head.environment, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", HOLDER, self._head.driver_address]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as holder:
            try:
                assert holder.stdout is not None
                assert "at work" in holder.stdout.readline()
                yield holder
            finally:
                holder.kill()


def test_runs_wait_for_their_turn_are_taken_out_by_a_stop_and_outlive_a_driver_that_dies(
    ray_head: RayHead, tmp_path: Path
) -> None:
    laboratory = Laboratory(ray_head, tmp_path)
    with laboratory.all_cpus_taken() as holder:
        first, second = laboratory.submit(), laboratory.submit("--priority", "1")
        wait_until(lambda: laboratory.states() == {first: "QUEUED", second: "QUEUED"}, "the runs are not queued")
        log = laboratory.orchestrator("runs", "logs", first)
        assert "waiting for run holder (4 CPUs)" in log
        laboratory.orchestrator("stop", first)
        assert laboratory.states() == {first: "STOPPED", second: "QUEUED"}
        holder.send_signal(signal.SIGKILL)
        laboratory.orchestrator("wait", second, "--timeout", str(PATIENCE_S))
        assert "the run begins" in laboratory.orchestrator("runs", "logs", second)
    record = json.loads(laboratory.orchestrator("runs", "show", second, "-f", "json"))
    assert record["seconds"] < SILENT_S
