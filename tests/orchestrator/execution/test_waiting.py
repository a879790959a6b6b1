"""A run's log over attempts, of runs within runs, on a storage that fails; followed, waited for, without readers.

Run alone: pytest tests/orchestrator/execution/test_waiting.py
"""

import logging
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import IO
from uuid import uuid4

import pytest

from orchestrator.base.console import attached
from orchestrator.base.console.log_lines import OWN_LOGGERS
from orchestrator.base.errors import NotFoundError, RegistryUnavailableError, RunFailedError
from orchestrator.base.results import MetricEvent, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.cli.entry import run_command_line
from orchestrator.execution.attempt import RunLog, logged_run
from orchestrator.execution.attempt_files import LOG_FILE
from orchestrator.execution.waiting import follow_log, outcome_line, progress_line, recorded_id, wait_for_run
from orchestrator.kinds import kind_of
from orchestrator.kinds.pretrain import PretrainKind
from orchestrator.registry import Registry, database
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.run_results import RunMetrics
from orchestrator.specs.loading import parse_spec
from orchestrator.storage import exists, join, logs, open_read, read_bytes, write_bytes
from tests.orchestrator.execution.below_ray import NUM_LINES, command_of, environment_of, write_inputs
from tests.waiting import PATIENCE_S, wait_until

logger = logging.getLogger("orchestrator.anywhere")


def lines(folder: str) -> list[str]:
    """A log's lines without their times."""
    return [line.split(" ", 2)[2] for line in read_bytes(join(folder, LOG_FILE)).decode().splitlines()]


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A run's folder, once per kind of storage."""
    return str(tmp_path / "run") if request.param == "local" else f"memory://{uuid4().hex}"


def test_attempts_append_and_say_how_they_end(folder: str) -> None:
    def interrupted() -> None:
        with logged_run(folder):
            logger.info("attempt 1, 100 %")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with logged_run(folder):
        logging.getLogger("bert_core.anywhere").warning("attempt %d", 2)
    assert lines(folder) == ["attempt 1, 100 %", "ended: interrupted", "warning: attempt 2", "completed"]


def test_a_last_line_reaches_an_object_store_though_none_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "UPLOAD_INTERVAL_S", 0.01)
    folder = f"memory://{uuid4().hex}"
    log = RunLog(folder)
    log.write("first words")
    log.write("last words")
    wait_until(lambda: exists(join(folder, LOG_FILE)) and lines(folder)[-1] == "last words", "the words are lost")
    assert lines(folder) == ["first words", "last words"]


def test_a_run_whose_process_is_killed_leaves_what_it_said(tmp_path: Path) -> None:
    code = """
import logging, os, signal, sys
from orchestrator.execution.attempt import logged_run
with logged_run(sys.argv[1]):
    for number in range(500):
        logging.getLogger("orchestrator.anywhere").info(f"line {number}")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=PATIENCE_S, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert lines(str(tmp_path)) == [f"line {number}" for number in range(500)]


def test_a_line_goes_to_the_innermost_run_and_an_unowned_one_to_all(tmp_path: Path) -> None:
    pipeline, stage = str(tmp_path / "pipeline"), str(tmp_path / "stage")
    with logged_run(pipeline):
        logger.info("before")
        with logged_run(stage):
            logger.info("inside")
            thread = threading.Thread(target=logger.info, args=["from a thread"])
            thread.start()
            thread.join()
        logger.info("after")
    assert lines(pipeline) == ["before", "from a thread", "after", "completed"]
    assert lines(stage) == ["inside", "from a thread", "completed"]


def test_only_the_projects_loggers_are_touched_and_only_meanwhile(tmp_path: Path) -> None:
    def state() -> list[tuple[int, list[logging.Handler]]]:
        return [
            (own.level, list(own.handlers)) for own in (*OWN_LOGGERS, logging.getLogger(), logging.getLogger("ray"))
        ]

    before = state()
    with logged_run(str(tmp_path)):
        logging.getLogger("ray.data").error("not ours")
        logging.getLogger().error("nobody's")
        assert state()[2:] == before[2:]
    assert state() == before
    assert lines(str(tmp_path)) == ["completed"]


def test_a_level_that_somebody_set_stays(tmp_path: Path) -> None:
    OWN_LOGGERS[0].setLevel(logging.ERROR)
    try:
        with logged_run(str(tmp_path)):
            logger.info("not asked for")
        assert OWN_LOGGERS[0].level == logging.ERROR
    finally:
        OWN_LOGGERS[0].setLevel(logging.NOTSET)
    assert lines(str(tmp_path)) == ["completed"]


def test_a_log_that_cannot_be_written_is_one_warning_and_ends_nothing(
    folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    log = RunLog(folder)
    monkeypatch.setattr(Path, "open", fail)
    monkeypatch.setattr(logs, "write_bytes", fail)
    with attached(log):
        for _ in range(2):
            logger.info("step 1")
        log.close()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "log.txt cannot be written: [Errno 28] No space left on device" in warning


def test_half_of_a_character_does_not_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("orchestrator"), "propagate", False)  # pytest could not report the line
    with logged_run(str(tmp_path)):
        logger.info("not UTF-8: \udcff")
    assert lines(str(tmp_path)) == ["not UTF-8: ?", "completed"]


RUN_ID = "7f3a90b1c2d4"


def start(recorder: Recorder, folder: Path | str) -> None:
    recorder.start({"kind": "pretrain", "name": "small"}, "f" * 64, storage_path=str(folder), run_id=RUN_ID)


def test_a_log_is_waited_for_and_passed_on_to_its_last_line(
    settings: Settings, recorder: Recorder, tmp_path: Path
) -> None:
    """Events between pieces of a log: each happens once the piece before it has been passed on."""
    start(recorder, tmp_path)
    pieces: list[bytes] = []
    log = tmp_path / "log.txt"

    def take(data: bytes) -> None:
        pieces.append(data)
        if len(pieces) == 1:
            with log.open("ab") as file:
                file.write(b"step 2\n")
        elif len(pieces) == 2:
            with log.open("ab") as file:
                file.write(b"completed\n")
            recorder.complete(RUN_ID, RunOutcome())

    log.write_text("step 1\n")
    assert follow_log("7f3a", settings=settings, write=take, pause_s=0).state == RunState.COMPLETED
    assert pieces == [b"step 1\n", b"step 2\n", b"completed\n"]


def test_of_a_pipeline_the_log_of_the_stage_at_work_is_passed_on_too(
    settings: Settings, recorder: Recorder, tmp_path: Path
) -> None:
    def begin(name: str, *lines: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "log.txt").write_text("".join(f"{line}\n" for line in lines))
        values = {"kind": "tokenizer", "name": f"all/{name}", "tags": [f"pipeline:{RUN_ID}"]}
        return recorder.start(values, "f" * 64, storage_path=str(folder)).id

    used_again = begin("used-again", "of another pipeline")
    (tmp_path / "log.txt").write_text("stage 2 of 4\n")
    recorder.start({"kind": "pipeline", "name": "all"}, "f" * 64, storage_path=str(tmp_path), run_id=RUN_ID)
    before = begin("before", "before anybody looked")
    recorder.complete(before, RunOutcome())
    at_work = begin("at-work", "step 1")
    recorder.complete(used_again, RunOutcome())
    heard: list[str] = []

    def take(data: bytes) -> None:
        heard.extend(data.decode().splitlines())
        if heard[-1] == "step 1":
            with (tmp_path / "at-work" / "log.txt").open("a") as file:
                file.write("completed\n")
            with (tmp_path / "log.txt").open("a") as file:
                file.write("stage 4 of 4\n")
            recorder.complete(at_work, RunOutcome())
            begin("last", "step 1 of the last")
        elif heard[-1] == "step 1 of the last":
            recorder.complete(RUN_ID, RunOutcome())

    follow_log(RUN_ID, settings=settings, write=take, pause_s=0)
    assert heard == ["stage 2 of 4", "step 1", "completed", "stage 4 of 4", "step 1 of the last"]


def test_a_run_that_ended_without_a_log_is_followed_to_its_end(
    settings: Settings, recorder: Recorder, tmp_path: Path
) -> None:
    start(recorder, tmp_path)
    recorder.fail(RUN_ID, RunFailedError("no luck"))
    pieces: list[bytes] = []
    assert follow_log(RUN_ID, settings=settings, write=pieces.append, pause_s=0).state == RunState.FAILED
    assert pieces == []


def test_of_a_log_in_a_bucket_only_what_was_added_is_read(
    settings: Settings, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(recorder, "memory://grows")
    write_bytes("memory://grows/log.txt", b"step 1\n")
    positions: list[int] = []
    pieces: list[bytes] = []

    def opened(path: str) -> IO[bytes]:
        file = open_read(path)
        monkeypatch.setattr(file, "seek", lambda position: positions.append(position) or BytesIO.seek(file, position))
        return file

    def take(data: bytes) -> None:
        pieces.append(data)
        if len(pieces) == 1:  # the whole log again, as an object store wants it
            write_bytes("memory://grows/log.txt", b"step 1\nended\n")
            recorder.fail(RUN_ID, RunFailedError("no luck"))

    monkeypatch.setattr("orchestrator.execution.waiting.open_read", opened)
    follow_log(RUN_ID, settings=settings, write=take, pause_s=0)
    assert pieces == [b"step 1\n", b"ended\n"]
    assert positions == [0, len(pieces[0])]


@pytest.mark.parametrize(
    ("error", "status", "shown"),
    [
        (None, 0, "a line that is too long\nstep 1\n"),
        (RunFailedError("no luck"), 1, "a line that is\n  too long\nstep 1\n"),
    ],
    ids=["completed", "failed, on a terminal"],
)
def test_the_command_prints_the_log_and_ends_as_the_run(
    settings: Settings,
    recorder: Recorder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException | None,
    status: int,
    shown: str,
) -> None:
    start(recorder, tmp_path)
    (tmp_path / "log.txt").write_text("a line that is too long\nstep 1\n")
    if error is None:
        recorder.complete(RUN_ID, RunOutcome())
    else:
        recorder.fail(RUN_ID, error)
        monkeypatch.setattr("orchestrator.cli.runs.terminal_width", lambda stream: 16)
    assert run_command_line(["runs", "logs", "--follow", RUN_ID]) == status
    said = capsys.readouterr()
    assert said.out == shown
    assert said.err.startswith(f"run {RUN_ID} is {'COMPLETED' if error is None else 'FAILED'}")


def test_workers_logs_are_not_followed(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["runs", "logs", "--follow", "--worker", "1", "--", RUN_ID]) == 2
    assert "--follow is for the run's log" in capsys.readouterr().err


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
def test_a_run_whose_readers_have_left_completes(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    assert run_without_readers(tmp_path, "chat", stdout=True, stderr=True)[0] == 0
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


def start_run(recorder: Recorder, **fields: object) -> str:
    return recorder.start({"kind": "pretrain", "name": "small", "steps": 1000, **fields}, "f" * 64).id


@pytest.mark.parametrize(("error", "status"), [(None, 0), (RunFailedError("no luck"), 1), (KeyboardInterrupt(), 1)])
def test_the_exit_status_is_the_outcome(
    settings: Settings, recorder: Recorder, capsys: pytest.CaptureFixture[str], error: BaseException | None, status: int
) -> None:
    run_id = start_run(recorder)
    if error is None:
        recorder.complete(run_id, RunOutcome())
    else:
        recorder.fail(run_id, error)
    assert run_command_line(["wait", run_id]) == status
    assert capsys.readouterr().err == outcome_line(recorder.registry.run(run_id)) + "\n"


@pytest.mark.parametrize("completes", [True, False])
def test_a_run_that_was_submitted_just_now_is_waited_for_until_one_time(
    settings: Settings,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    completes: bool,
) -> None:
    """A run that begins between two looks, as a driver on a cluster begins it, is waited for."""
    run_id, pauses = "7f3a90b1c2d4", []

    def begin(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 2:
            recorder.start({"kind": "pretrain", "name": "small"}, "f", run_id=run_id)
            if completes:
                recorder.complete(run_id, RunOutcome())

    caplog.set_level("INFO", "orchestrator")
    clock = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=begin)
    monkeypatch.setattr("orchestrator.execution.waiting.time", clock)
    with nullcontext() if completes else pytest.raises(RunFailedError, match="after 9 s"):
        assert wait_for_run(run_id, settings=settings, timeout_s=9, pause_s=3).id == run_id
    assert pauses == ([3, 3] if completes else [3, 3, 3])
    assert caplog.messages == [f"run {run_id} is not recorded yet; its job may be starting"]


def test_a_run_that_nobody_records_is_unknown_after_a_while(settings: Settings, recorder: Recorder) -> None:
    with pytest.raises(NotFoundError):
        recorded_id(recorder.registry, "7f3a90b1c2d4", patience_s=0, pause_s=0)


def test_a_run_is_waited_for_until_it_ends(settings: Settings, recorder: Recorder) -> None:
    run_id, lines = start_run(recorder), []

    def end_at_the_second_look(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            recorder.complete(run_id, RunOutcome())

    record = wait_for_run(run_id[:6], settings=settings, on_progress=end_at_the_second_look, pause_s=0.0)
    assert (record.id, record.state, len(lines)) == (run_id, "COMPLETED", 2)


def test_a_registry_that_is_away_for_a_moment_ends_no_wait(
    settings: Settings, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, last_step, looks = start_run(recorder), RunMetrics.last_step, []

    def be_away_once(metrics: RunMetrics, run_id: str) -> int | None:
        looks.append(run_id)
        if len(looks) == 1:
            raise RegistryUnavailableError("the registry does not answer.")
        return last_step(metrics, run_id)

    monkeypatch.setattr(database, "RETRY_S", 0.0)
    monkeypatch.setattr(RunMetrics, "last_step", be_away_once)
    ended = wait_for_run(
        run_id, settings=settings, on_progress=lambda line: recorder.complete(run_id, RunOutcome()), pause_s=0.0
    )
    assert (ended.state, len(looks)) == ("COMPLETED", 2)


def test_a_line_of_progress_has_step_and_loss(recorder: Recorder) -> None:
    run_id = start_run(recorder)
    recorder.record_events(run_id, [MetricEvent(40, "train", {"loss": 2.5})])
    line = progress_line(recorder.registry, recorder.registry.run(run_id))
    assert line == "small  RUNNING  step 40 of 1,000  train.loss 2.5000"


@pytest.mark.parametrize("steps", [[0, 40], "auto"])
def test_a_line_of_progress_has_no_last_step_where_the_spec_tells_none(recorder: Recorder, steps: object) -> None:
    run_id = start_run(recorder, steps=steps)
    recorder.record_events(run_id, [MetricEvent(40, "train", {"loss": 2.5})])
    assert "  step 40  " in progress_line(recorder.registry, recorder.registry.run(run_id))


def test_a_line_of_progress_counts_the_trials_of_a_pipelines_newest_stage(recorder: Recorder) -> None:
    pipeline = recorder.start({"kind": "pipeline", "name": "all"}, "f" * 64)
    stage = start_run(recorder, kind="sweep", tags=[f"pipeline:{pipeline.id}"], steps=None)
    recorder.registry.trials.record(stage, [TrialStart("a", 0, {"seed": 0}, 0)])
    assert progress_line(recorder.registry, pipeline) == "small  RUNNING  1 running"


def test_a_pipeline_ends_with_a_line_for_each_stage_in_order(recorder: Recorder) -> None:
    words = {"kind": "tokenizer", "corpus": {"files": ["text.txt"]}}
    stages = {"small": words, "large": words}
    pipeline = recorder.start({"kind": "pipeline", "name": "all", "stages": stages}, "f")
    for name in stages:
        recorder.start({**words, "name": f"all/{name}", "tags": [f"pipeline:{pipeline.id}"]}, name)
    lines = kind_of(parse_spec({"kind": "pipeline", "stages": stages})).summary_lines(pipeline.id, recorder.registry)
    assert lines == ["small: completed after 0 s", "large: completed after 0 s"]


def test_a_registry_that_is_away_costs_the_last_words_alone(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_away(run_id: str) -> None:
        raise RegistryUnavailableError("the registry does not answer.")

    monkeypatch.setattr(recorder.registry, "run", be_away)
    assert PretrainKind().summary_lines("7f3a", recorder.registry) == [
        "the result cannot be shown: the registry does not answer."
    ]
