"""Whoever reads a run's messages may leave: the run goes on, and its log has them.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_readers_that_leave.py
"""

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.registry import Registry
from orchestrator.run_states import RunState
from tests.orchestrator.execution.below_ray import NUM_LINES, command_of, environment_of, write_inputs
from tests.waiting import PATIENCE_S


def run_without_readers(folder: Path, work: str, *words: str, stdout: bool, stderr: bool) -> tuple[int, bytes]:
    """Exit status of a command whose stdout or stderr is a pipe that nobody reads, and what it said on stderr else."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command_of(work, *(words or ("run", "words.yaml"))),
        cwd=folder,
        env=environment_of(folder / "home"),
        stdout=writing if stdout else subprocess.DEVNULL,
        stderr=writing if stderr else subprocess.PIPE,
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(writing)
    return done.returncode, done.stderr or b""


def only_run(folder: Path) -> tuple[RunState, str]:
    """State and log of the one run."""
    with Registry(f"sqlite:///{folder / 'home' / 'registry.sqlite'}") as registry:
        (run_id,) = registry.runs()["id"]
        record = registry.run(run_id)
    assert record.storage_path is not None
    return record.state, (Path(record.storage_path) / "log.txt").read_text()


@pytest.mark.runs
@pytest.mark.parametrize("gone", ["stdout", "both"])
def test_a_run_whose_readers_have_left_completes(tmp_path: Path, gone: str) -> None:
    write_inputs(tmp_path)
    assert run_without_readers(tmp_path, "chat", stdout=True, stderr=gone == "both")[0] == 0
    state, log = only_run(tmp_path)
    assert state == RunState.COMPLETED
    assert f"line {NUM_LINES - 1} " in log


@pytest.mark.runs
def test_a_failure_keeps_its_status_without_a_reader(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    assert run_without_readers(tmp_path, "fail", stdout=True, stderr=True)[0] == 1
    state, log = only_run(tmp_path)
    assert state == RunState.FAILED
    assert "no luck" in log


@pytest.mark.runs
def test_the_head_of_a_list_says_nothing_on_stderr(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    run_without_readers(tmp_path, "succeed", stdout=False, stderr=False)
    assert run_without_readers(tmp_path, "succeed", "runs", "list", stdout=True, stderr=False) == (0, b"")
