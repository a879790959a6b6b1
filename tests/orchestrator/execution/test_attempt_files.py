"""An attempt that is starting: announced before it is recorded, seen by who stops the run, waits for it or follows it.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_attempt_files.py
"""

import json
import os
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.base.errors import RunFailedError, StopRequested
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.execution.attempt import StopRequestWatcher
from orchestrator.execution.attempt_files import (
    STARTING_FILE,
    StartingAttempt,
    StopRequest,
    announced,
    is_over,
    starting_attempt,
)
from orchestrator.execution.stopping import stop_run
from orchestrator.execution.waiting import follow_log, wait_for_run
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.records import RunRecord
from tests.waiting import PATIENCE_S, wait_for_interruption

SPEC = {"kind": "pretrain", "name": "small", "steps": 100}


@pytest.fixture
def stopped(recorder: Recorder, tmp_path: Path) -> RunRecord:
    """A run that was stopped."""
    (tmp_path / "run").mkdir()
    record = recorder.start(SPEC, "f" * 64, storage_path=str(tmp_path / "run"))
    recorder.fail(record.id, KeyboardInterrupt())
    return recorder.registry.run(record.id)


def announce(record: RunRecord, **changes: object) -> None:
    fields = {
        "number": record.attempt + 1,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "announced_at": time.time(),
    }
    (Path(str(record.storage_path)) / STARTING_FILE).write_text(json.dumps(fields | changes))


def test_a_resume_is_announced_while_its_block_lasts(stopped: RunRecord, settings: Settings) -> None:
    folder = str(stopped.storage_path)
    with announced(stopped.id, settings):
        with announced(stopped.id, settings):
            pass
        assert starting_attempt(stopped, folder) == StartingAttempt(2, socket.gethostname(), os.getpid())
        assert not is_over(stopped, settings)
    assert starting_attempt(stopped, folder) is None
    assert not (Path(folder) / STARTING_FILE).exists()


def test_a_run_that_cannot_go_on_is_not_announced(recorder: Recorder, stopped: RunRecord, settings: Settings) -> None:
    recorder.resume(stopped.id)
    recorder.complete(stopped.id, RunOutcome())
    for run_id in (stopped.id, "unknown"):
        with announced(run_id, settings):
            assert not (Path(str(stopped.storage_path)) / STARTING_FILE).exists()


def test_an_announcement_that_was_left_behind_counts_for_nothing(stopped: RunRecord) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    elsewhere_long_ago = {"host": "gpu-7", "announced_at": 0.0}
    announced_late: list[dict[str, object]] = [{"pid": gone.pid}, {"number": 1}, elsewhere_long_ago, {"more": 1}]
    for changes in announced_late:
        announce(stopped, **changes)
        assert starting_attempt(stopped, str(stopped.storage_path)) is None
    for believed in (
        {"host": "gpu-7", "pid": gone.pid},
        {"announced_at": 0.0},
    ):  # a process here, however long it takes
        announce(stopped, **believed)
        assert starting_attempt(stopped, str(stopped.storage_path)) is not None


def test_a_request_for_a_start_that_failed_does_not_stop_the_next_one(stopped: RunRecord, settings: Settings) -> None:
    folder = str(stopped.storage_path)
    with announced(stopped.id, settings):
        stop_run(stopped.id, settings=settings)
        assert StopRequest.load(folder) == StopRequest(2)
    with announced(stopped.id, settings):
        assert StopRequest.load(folder) is None


def test_an_announcement_of_another_process_is_left_alone(stopped: RunRecord, settings: Settings) -> None:
    announce(stopped, host="gpu-7", pid=77)
    with announced(stopped.id, settings):
        pass
    assert starting_attempt(stopped, str(stopped.storage_path)) == StartingAttempt(2, "gpu-7", 77)


def test_a_trial_at_work_is_not_over(stopped: RunRecord, settings: Settings) -> None:
    at_work = replace(stopped, parent_id="sweep", state=RunState.RUNNING)
    assert not is_over(at_work, settings)
    assert is_over(replace(at_work, state=RunState.STOPPED), settings)


def test_a_stop_is_heeded_by_the_attempt_that_is_starting(
    recorder: Recorder, stopped: RunRecord, settings: Settings
) -> None:
    announce(stopped)
    said: list[str] = []
    stop_run(stopped.id, settings=settings, say=said.append)
    assert said == [
        f"asked run {stopped.id} to stop: process {os.getpid()} on {socket.gethostname()} is about to go on with it"
    ]
    begun = recorder.resume(stopped.id)
    with (
        pytest.raises(StopRequested),
        StopRequestWatcher(recorder).watching(begun, str(begun.storage_path), interval_s=PATIENCE_S),
    ):
        wait_for_interruption()


def test_a_stop_waits_until_the_attempt_that_is_starting_has_ended(
    recorder: Recorder, stopped: RunRecord, settings: Settings
) -> None:
    """The attempt begins and ends between two looks of the command that waits."""
    announce(stopped, host="gpu-7")
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        recorder.registry.lifecycle.start_attempt(stopped.id, host="gpu-7", pid=77)
        recorder.registry.lifecycle.finish(stopped.id, RunState.STOPPED, attempt=2)

    assert stop_run(stopped.id, settings=settings, timeout_s=PATIENCE_S, say=say).attempt == 2
    assert said[-1] == f"run {stopped.id} has ended, as STOPPED"


def test_a_stop_of_an_attempt_that_never_begins_says_so(stopped: RunRecord, settings: Settings) -> None:
    announce(stopped, host="gpu-7")
    with pytest.raises(RunFailedError, match="has not ended within 0 s"):
        stop_run(stopped.id, settings=settings, timeout_s=0.0)
    said: list[str] = []

    def give_up(line: str) -> None:
        said.append(line)
        (Path(str(stopped.storage_path)) / STARTING_FILE).unlink(missing_ok=True)

    assert stop_run(stopped.id, settings=settings, timeout_s=PATIENCE_S, say=give_up).state == RunState.STOPPED
    assert said[-1] == f"run {stopped.id} has ended already, as STOPPED"
    assert StopRequest.load(str(stopped.storage_path)) == StopRequest(2)


def test_a_run_that_is_about_to_go_on_is_waited_for(recorder: Recorder, stopped: RunRecord, settings: Settings) -> None:
    announce(stopped)
    log = Path(str(stopped.storage_path)) / "log.txt"
    log.write_text("stopped\n")

    def go_on(data: bytes) -> None:
        recorder.resume(stopped.id)
        recorder.complete(stopped.id, RunOutcome())

    with pytest.raises(RunFailedError, match="is still STOPPED after"):
        wait_for_run(stopped.id, settings=settings, timeout_s=0.0, pause_s=0.0)
    assert follow_log(stopped.id, settings=settings, write=go_on, pause_s=0).state == RunState.COMPLETED
    assert wait_for_run(stopped.id, settings=settings, timeout_s=0.0).state == RunState.COMPLETED
