"""A run of two workers on Ray, of which one is killed, and which is then interrupted; nodes that join
and are lost: nothing is lost, all is told.

Run alone: pytest tests/orchestrator/pretraining/test_faults_on_ray.py
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.settings import Settings
from orchestrator.execution.runner import resume_run, run_spec
from orchestrator.registry import Registry
from orchestrator.specs import PretrainSpec
from orchestrator.specs.loading import spec_values
from orchestrator.storage import digest_file, write_json
from tests.orchestrator.pretraining.elastic_run import CHECKPOINT_EVERY
from tests.orchestrator.pretraining.elastic_run import STEPS as ELASTIC_STEPS
from tests.orchestrator.pretraining.small_run import write_spec
from tests.waiting import PATIENCE_S

STEPS, LOGGED_EVERY = 120, 6
TELL_EVERY_STEP = """
from orchestrator.base.console import terminal
terminal.PLAIN_INTERVAL_S = 0.0
from orchestrator.cli.entry import main
main()
"""


class Driver:
    """An `orchestrator run` in a process of its own, whose lines are read one by one."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.said: list[str] = []

    def read_until(self, pattern: str) -> re.Match[str]:
        """Read lines up to one that has a pattern."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip())
            if match := re.search(pattern, line):
                return match
        pytest.fail(f"{pattern!r} was not said: {self.said[-20:]}")


@contextmanager
def driving(folder: Path, spec: PretrainSpec) -> Iterator[Driver]:
    """A driver, whose process is ended with the block if it has not."""
    write_json(str(folder / "spec.yaml"), spec_values(spec))  # JSON is YAML
    command = [sys.executable, "-c", TELL_EVERY_STEP, "--home", folder / "home", "run", folder / "spec.yaml"]
    environment = {**os.environ, "RAY_ADDRESS": "local"}
    with subprocess.Popen(list(map(str, command)), env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Driver(process)
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.ray
@pytest.mark.training
@pytest.mark.core
def test_a_run_with_a_killed_worker_and_an_interrupt_ends_with_the_bits_of_one_without(
    ray_cluster: None, tmp_path: Path
) -> None:
    spec = write_spec(tmp_path, STEPS, num_workers=2, cpus_per_worker=0.5, log_every_steps=LOGGED_EVERY)
    with driving(tmp_path, spec) as driver:
        driver.read_until(r"^step \d+/")
        (log,) = (tmp_path / "home").glob("storage/runs/*/workers/attempt-1-rank-1.txt")
        begun = re.search(r"rank 1, attempt 1, process (\d+) on (\S+)", log.read_text())
        assert begun is not None
        os.kill(int(begun[1]), signal.SIGKILL)
        driver.read_until(f"training worker 1 on {begun[2]} failed: its process was killed or crashed")
        driver.read_until(f"starting again from the beginning on {begun[2]}")
        driver.read_until(r"^step \d+/")
        driver.process.send_signal(signal.SIGTERM)
        driver.read_until("stopping: saving a checkpoint after this step; Ctrl-C again leaves at once")
        step = int(driver.read_until(r"stopped after step (\d+)")[1])
        driver.read_until("go on with: ")
        assert (driver.process.wait(), 0 < step < STEPS) == (143, True)

    settings = Settings.from_options(home=str(tmp_path / "home"), environ={})
    with Registry(settings.registry) as registry:
        (stopped,) = registry.runs()["id"]
        assert registry.run(stopped).state == "STOPPED"
    resumed = resume_run(stopped, settings=settings)
    straight = run_spec(spec, settings=settings)
    weights = [digest_file(f"{record.model_folder}/model.safetensors") for record in (straight, resumed)]
    assert weights[0] == weights[1]
    with Registry(settings.registry) as registry:
        curves = [registry.metrics.history(record.id, "mlm_loss").frame() for record in (straight, resumed)]
    steps = [curve[curve["split"] == "train"]["step"].tolist() for curve in curves]
    assert steps == [list(range(LOGGED_EVERY, STEPS + 1, LOGGED_EVERY))] * 2
    first, second = (curve["value"].tolist() for curve in curves)
    assert first == second


def told_by(module: str, folder: Path) -> Any:
    """Findings of a program of this folder that has a cluster of its own."""
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
    assert begun == 0 < grown <= lost < ELASTIC_STEPS
    assert grown % CHECKPOINT_EVERY == lost % CHECKPOINT_EVERY == 0, "steps since the last checkpoint are trained again"
    assert len(straight["batches"]) == ELASTIC_STEPS
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
