"""Stopping a run from another process: its end state, its message, who is too late, and what force means.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_stopping.py
"""

import itertools
import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from orchestrator.base.errors import ClusterError, InputError, NotFoundError, RunFailedError, StopRequested
from orchestrator.base.results import TrialResult, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.cluster.head_watch import INTERVAL_S as HEAD_INTERVAL_S
from orchestrator.cluster.head_watch import HeadWatch
from orchestrator.execution.attempt import StopRequestWatcher
from orchestrator.execution.attempt_files import STOP_FILE, StopRequest, is_alive
from orchestrator.execution.garbage import find_garbage
from orchestrator.execution.stopping import stop_run, where_it_stopped
from orchestrator.execution.waiting import wait_for_run
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.registry.records import RunRecord
from tests.orchestrator.execution.below_ray import command_of, environment_of, running, write_inputs
from tests.waiting import PATIENCE_S, wait_for_interruption

SPEC = {"kind": "pretrain", "name": "small", "steps": 100}


@pytest.fixture(autouse=True)
def inputs(tmp_path: Path) -> None:
    write_inputs(tmp_path)


def start(recorder: Recorder, folder: Path) -> RunRecord:
    """A run that this process carries out."""
    folder.mkdir()
    return recorder.start(SPEC, "f" * 64, storage_path=str(folder))


def record_of(settings: Settings, run_id: str) -> RunRecord:
    with Registry(settings.registry) as registry:
        return registry.run(run_id)


@pytest.mark.runs
@pytest.mark.core
def test_a_run_is_stopped_from_another_process(tmp_path: Path, settings: Settings) -> None:
    with running("end_interrupted_at_step_7", tmp_path) as (process, run_id):
        done = subprocess.run(
            command_of("succeed", "stop", run_id),
            cwd=tmp_path,
            env=environment_of(tmp_path / "home"),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert f"run {run_id} has ended, as STOPPED" in done.stderr
        assert f"go on with: orchestrator resume {run_id}" in done.stderr
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert f"stopped after step 7; go on with: orchestrator resume {run_id}\n" in said
    assert said.splitlines()[-1] == f"Stopped by `orchestrator stop {run_id}`"
    record = record_of(settings, run_id)
    assert (record.state, record.error) == (RunState.STOPPED, f"stopped by `orchestrator stop {run_id}`")
    log = (Path(settings.storage) / "runs" / run_id / "log.txt").read_text()
    assert log.splitlines()[-1].endswith(f"ended: stopped by `orchestrator stop {run_id}`")


@pytest.mark.runs
def test_a_run_that_takes_long_to_save_can_be_forced(tmp_path: Path, settings: Settings) -> None:
    with running("hang", tmp_path) as (process, run_id):
        with pytest.raises(RunFailedError, match="--force"):
            stop_run(run_id, settings=settings, timeout_s=0.01)
        assert process.poll() is None
        assert stop_run(run_id, settings=settings, force=True, timeout_s=PATIENCE_S).state == RunState.STOPPED
        assert process.wait(PATIENCE_S) == 1


@pytest.mark.runs
@pytest.mark.core
def test_a_second_ctrl_c_records_the_end_and_says_how_to_go_on(tmp_path: Path, settings: Settings) -> None:
    with running("hang", tmp_path) as (process, run_id):
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        for line in process.stderr:
            if line == "saving\n":
                break
        while process.poll() is None:  # one that comes at once counts as the first
            process.send_signal(signal.SIGINT)
            threading.Event().wait(0.1)
        assert process.returncode == 130
        assert process.stderr.read().endswith(f"orchestrator resume {run_id}\n")
    record = record_of(settings, run_id)
    assert (record.state, record.error) == (RunState.STOPPED, "interrupted twice, and left without saving")


@pytest.mark.parametrize("is_other_attempt", [True, False], ids=["of another attempt", "to a run that saves already"])
def test_a_request_that_is_not_for_now_sends_no_signal(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, is_other_attempt: bool
) -> None:
    signals: list[int] = []
    monkeypatch.setattr(signal, "pthread_kill", lambda thread, number: signals.append(number))
    if not is_other_attempt:
        under_way = threading.Event()
        under_way.set()
        monkeypatch.setattr("orchestrator.execution.attempt.interruption_under_way", under_way)
    looked = threading.Event()
    load = StopRequest.load

    def note(run_folder: str) -> StopRequest | None:
        looked.set()
        return load(run_folder)

    record = start(recorder, tmp_path / "run")
    StopRequest(record.attempt + is_other_attempt).save(str(tmp_path / "run"))
    monkeypatch.setattr(StopRequest, "load", note)
    with StopRequestWatcher(recorder).watching(record, str(tmp_path / "run"), interval_s=0.001):
        assert looked.wait(PATIENCE_S)
        looked.clear()
        assert looked.wait(PATIENCE_S), "it looks again"
    assert signals == []


def test_a_driver_whose_clusters_head_has_gone_records_that_and_leaves(
    tmp_path: Path,
    settings: Settings,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipeline, stage = start(recorder, tmp_path / "run"), start(recorder, tmp_path / "stage")
    lives, left = [True], threading.Event()
    statuses: list[int] = []
    seconds = itertools.count(step=HEAD_INTERVAL_S)

    def leave(status: int) -> None:
        statuses.append(status)
        lives[0] = True  # the process that would have ended goes on here
        left.set()

    def watch(words: str) -> HeadWatch:
        return HeadWatch("10.0.0.1:6379", words, lambda address: lives[0], lambda: next(seconds), patience_s=42.0)

    monkeypatch.setattr(os, "_exit", leave)
    stop_watch = StopRequestWatcher(recorder, watch)
    with (
        stop_watch.watching(pipeline, str(tmp_path / "run"), interval_s=0.001),
        stop_watch.watching(stage, str(tmp_path / "stage"), interval_s=0.001),
    ):
        lives[0] = False
        assert left.wait(PATIENCE_S), "whatever this thread waits for"
    assert statuses == [ClusterError.exit_status]
    for run in (pipeline, stage):
        record = record_of(settings, run.id)
        assert record.state == RunState.FAILED
        assert "has not answered for 45 s: its GCS has ended" in str(record.error)
        assert f"then go on with: orchestrator resume {pipeline.id}" in str(record.error)
    assert any(text.endswith("has not answered for 5 s") for text in caplog.messages)


@pytest.mark.parametrize("ignored", [[], [signal.SIGINT], [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]])
def test_a_request_is_heeded_with_the_step_that_was_saved_whatever_signals_are_ignored(
    tmp_path: Path, recorder: Recorder, ignored: list[signal.Signals]
) -> None:
    """A script's `&` has SIGINT ignored by what it starts."""
    record = start(recorder, tmp_path / "run")
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}

    def save_and_stop() -> None:
        with StopRequestWatcher(recorder).watching(record, str(tmp_path / "run"), interval_s=0.001):
            try:
                StopRequest(record.attempt).save(str(tmp_path / "run"))
                wait_for_interruption()
            except KeyboardInterrupt as error:
                error.step = 30  # type: ignore[attr-defined]
                raise

    try:
        with pytest.raises(StopRequested, match=record.id) as stopped:
            save_and_stop()
        assert stopped.value.step == 30
        assert [signal.getsignal(number) for number in ignored] == [signal.SIG_IGN] * len(ignored)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("text", ["", "[]", '{"step": 1}', '{"attempt": 1'])
def test_a_request_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / STOP_FILE).write_text(text)
    assert StopRequest.load(str(tmp_path)) is None


def test_looking_for_a_run_makes_no_registry(tmp_path: Path) -> None:
    here = Settings.from_options(tmp_path / "home", environ={})
    with pytest.raises(NotFoundError):
        stop_run("7f3a", settings=here)
    with pytest.raises(NotFoundError):
        wait_for_run("7f3a", settings=here)
    assert find_garbage(here, 1e9) == []
    assert not (tmp_path / "home").exists()


def test_a_run_whose_process_is_gone_is_recorded_as_stopped(
    tmp_path: Path, settings: Settings, recorder: Recorder
) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    record = start(recorder, tmp_path / "run")
    recorder.registry.lifecycle.start_attempt(record.id, host=record.host, pid=gone.pid)
    assert stop_run(record.id, settings=settings, timeout_s=PATIENCE_S).state == RunState.STOPPED
    assert json.loads((tmp_path / "run" / STOP_FILE).read_text()) == {"attempt": 2, "force": False}


def test_a_run_that_has_ended_stays_as_it_is(tmp_path: Path, settings: Settings, recorder: Recorder) -> None:
    record = start(recorder, tmp_path / "run")
    recorder.fail(record.id, RunFailedError("no luck"))
    assert stop_run(record.id, settings=settings).state == RunState.FAILED
    assert not (tmp_path / "run" / STOP_FILE).exists()


def test_a_folder_that_is_not_reached_from_here_is_named(
    tmp_path: Path, settings: Settings, recorder: Recorder
) -> None:
    record = recorder.start(SPEC, "f" * 64, storage_path=str(tmp_path / "elsewhere"))
    recorder.registry.lifecycle.start_attempt(record.id, host="gpu-7", pid=77)
    with pytest.raises(InputError, match=r"elsewhere.* process 77 on gpu-7"):
        stop_run(record.id, settings=settings)


def test_a_process_that_nobody_has_asked_about_yet_has_ended() -> None:
    with subprocess.Popen(["true"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read()
        while is_alive(process.pid):
            pass
        assert not is_alive(process.pid)


def test_where_a_run_stopped_is_told_as_far_as_it_is_known(
    tmp_path: Path, settings: Settings, recorder: Recorder
) -> None:
    run_id = start(recorder, tmp_path / "run").id
    assert where_it_stopped(run_id, StopRequested(run_id, 1200), settings) == "stopped after step 1,200"
    assert where_it_stopped("unknown", KeyboardInterrupt(), settings) == "stopped"


def test_where_a_sweep_stopped_is_told_by_its_trials(settings: Settings, recorder: Recorder) -> None:
    pipeline = recorder.start({"kind": "pipeline", "name": "all"}, "f")
    sweep = recorder.start({"kind": "sweep", "name": "all/films", "tags": [f"pipeline:{pipeline.id}"]}, "g")
    recorder.registry.trials.record(sweep.id, [TrialStart(key, 0, {"seed": 0}, 0) for key in "ab"])
    recorder.registry.trials.record(sweep.id, [TrialResult("a", 0, {"seed": 0}, RunState.COMPLETED, 0)])
    for run_id in (sweep.id, pipeline.id):
        said = where_it_stopped(run_id, KeyboardInterrupt(), settings)
        assert "all/films  RUNNING  1 completed  1 running" in said
