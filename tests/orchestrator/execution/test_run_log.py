"""A run's log over attempts, of runs inside one another, and on a storage that fails.

Run alone: pytest tests/orchestrator/execution/test_run_log.py
"""

import logging
import signal
import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid4

import pytest

from orchestrator.execution.run_log import LOG_FILE, RunLog, logged_run
from orchestrator.progress import OWN_LOGGERS, attached
from orchestrator.storage import exists, join, read_bytes, uploads
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
    monkeypatch.setattr(uploads, "INTERVAL_S", 0.01)
    folder = f"memory://{uuid4().hex}"
    log = RunLog(folder)
    log.write("first words")
    log.write("last words")
    wait_until(lambda: exists(join(folder, LOG_FILE)) and lines(folder)[-1] == "last words", "the words are lost")
    assert lines(folder) == ["first words", "last words"]


def test_a_run_whose_process_is_killed_leaves_what_it_said(tmp_path: Path) -> None:
    code = """
import logging, os, signal, sys
from orchestrator.execution.run_log import logged_run
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
    monkeypatch.setattr(uploads, "write_bytes", fail)
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
