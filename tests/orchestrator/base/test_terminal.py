"""Progress on stderr: a status line that is written over on a terminal, plain lines elsewhere, one terminal for all.

Run alone: pytest tests/orchestrator/base/test_terminal.py
"""

import io
import logging
import os
import pty
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from contextlib import closing

import pytest
from rich.cells import cell_len

from orchestrator.base.console import UNDER_WAY, Progress, attached, log_lines, show_progress
from orchestrator.base.console.log_lines import OWN_LOGGERS, folded
from orchestrator.base.console.run_views import TrainingView
from tests.waiting import PATIENCE_S

logger = logging.getLogger("orchestrator.anywhere")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_lines_are_plain_and_more_than_information_has_its_level(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress():
        logger.info("100 % [bold] :smile:")
        logger.warning("no document of %s", "corpus")
        logger.debug("details")
        logging.getLogger("ray").warning("not ours")
    assert capsys.readouterr().err == "100 % [bold] :smile:\nwarning: no document of corpus\n"


def test_where_a_pipe_may_lead_to_the_same_terminal_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    reading, writing = os.pipe()
    terminal = Terminal()
    with open(reading), open(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with closing(Progress(terminal)) as progress, attached(progress):
            progress.status("loading the model")
            progress.show(TrainingView(1, 2))
    assert terminal.getvalue() == "loading the model\n"


@pytest.mark.parametrize("package", ["orchestrator", "bert_core"])
def test_to_who_imports_a_package_nothing_is_shown(package: str) -> None:
    code = f"import logging, {package}; logging.getLogger('{package}.anywhere').warning('nobody asked')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stderr == ""


def test_blocks_inside_one_another_show_a_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress() as outer:
        with show_progress() as inner:
            assert inner is outer
            logger.info("inside")
        logger.info("after")
    assert capsys.readouterr().err == "inside\nafter\n"
    assert not any(isinstance(handler, Progress) for own in OWN_LOGGERS for handler in own.handlers)


def test_a_closed_stderr_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with show_progress() as progress:
        logger.warning("nobody sees it")
        progress.status("nor this")
        progress.clear()
    assert sys.stderr is None


@pytest.mark.parametrize("terminal", [None, "dumb"])
def test_where_nothing_can_be_written_over_the_status_is_a_line_from_time_to_time(
    terminal: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(log_lines.time, "monotonic", lambda: now)
    monkeypatch.setenv("TERM", terminal or "xterm")
    stream = Terminal() if terminal else io.StringIO()
    progress = Progress(stream)
    with attached(progress):
        for step in range(25):
            now += 1.0
            progress.status(f"step {step}")
    assert stream.getvalue() == "step 0\nstep 11\nstep 22\n"


def test_in_a_pipe_what_is_under_way_is_a_line_and_no_view_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress() as progress:
        logger.info("loading %s", "minilm", extra=UNDER_WAY)
        progress.show(TrainingView(1, 2))
    assert capsys.readouterr().err == "loading minilm\n"


def test_on_a_terminal_what_is_under_way_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with closing(Progress(stream)) as progress, attached(progress):
        logger.info("loading minilm", extra=UNDER_WAY)
        shown = stream.getvalue()
    assert "loading minilm" in shown
    assert "\n" not in shown


def test_a_stage_is_a_line_that_stays_and_stands_before_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    with closing(Progress(stream)) as progress, attached(progress), progress.in_stage("stage 2 of 3: pretrain"):
        progress.status("tokenizing")
    assert stream.getvalue().startswith("stage 2 of 3: pretrain\n")
    assert "stage 2 of 3: pretrain  tokenizing" in stream.getvalue()


def test_a_signal_is_answered_on_the_status_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with closing(Progress(stream)) as progress, attached(progress):
        assert not progress.interrupted("stopping")
        progress.status("step 1")
        assert progress.interrupted("stopping")
    assert "stopping" in stream.getvalue()


@pytest.mark.parametrize(
    "change",
    [Progress.clear, lambda progress: progress.status("step 2"), lambda progress: progress.show(TrainingView(1, 2))],
)
def test_a_thread_waits_while_another_one_writes(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Progress], None]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with closing(Progress(Terminal())) as progress:
        progress.status("step 1")
        other = threading.Thread(target=change, args=(progress,))
        progress.acquire()
        other.start()
        other.join(0.1)
        waited = other.is_alive()
        progress.release()
        other.join(PATIENCE_S)
    assert waited
    assert not other.is_alive()


def test_a_signal_is_answered_while_a_thread_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    found: list[bool] = []
    with closing(Progress(Terminal())) as progress:
        progress.status("step 1")
        other = threading.Thread(target=lambda: found.append(progress.interrupted("stopping")))
        progress.acquire()
        other.start()
        other.join(PATIENCE_S)
        progress.release()
    assert found == [True]


SHOW = """
import logging
from orchestrator.base.console import show_progress
with show_progress() as progress:
    progress.status("step 1 " + "long " * 20)
    progress.status("step 2 [red]")
    logging.getLogger("orchestrator.x").info("a line that stays, longer than the terminal is wide [red]")
    progress.status("step 3")
print("done")
"""


@pytest.mark.parametrize("colors", [{}, {"NO_COLOR": "1"}], ids=["colors", "no colors"])
def test_on_a_terminal_the_status_line_is_written_over(colors: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "40", "TERM": "xterm", **colors}
    subprocess.run(
        [sys.executable, "-c", SHOW], stdout=theirs, stderr=theirs, env=environment, timeout=PATIENCE_S, check=True
    )
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    screen = [line.rpartition("\x1b[2K")[2] for line in shown.split("\r\n")]
    assert screen[0] == "a line that stays, longer than the terminal is wide [red]"
    assert screen[1].endswith(" step 3")
    assert shown.endswith("\x1b[1A\x1b[2Kdone\r\n"), "the status line is gone"
    assert "step 1 long long long long long long …" in shown
    assert "\x1b[31m" not in shown, "no markup"
    assert shown.rindex("\x1b[?25l") < shown.index("step 1"), "the cursor is hidden once"
    assert shown.index("\x1b[?25h") < shown.index("step 1"), "and shown again before anything else"


def test_long_lines_are_folded_between_words_on_a_terminal_alone() -> None:
    line = "beside the next group: +0.0042; two seeds that score the same: seed noise not known"
    code = (
        "import logging; from orchestrator.base.console import show_progress\n"
        f"with show_progress(): logging.getLogger('orchestrator.x').info({line!r})"
    )
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 60))
    subprocess.run([sys.executable, "-c", code], stderr=theirs, timeout=PATIENCE_S, check=True)
    os.close(theirs)
    seen = os.read(ours, 4096).decode().replace("\r", "")
    os.close(ours)
    assert seen == "beside the next group: +0.0042; two seeds that score the\n  same: seed noise not known\n"
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert piped.stderr == f"{line}\n"


@pytest.mark.parametrize("text", ["short", "  orchestrator runs show 7f3a --all --columns name", "one\ntwo\n", "a  b"])
def test_what_fits_or_is_indented_is_not_folded(text: str) -> None:
    assert folded(text, 20) == text


@pytest.mark.parametrize("width", [20, 40, 79])
def test_no_folded_line_is_too_wide_and_no_word_is_lost(width: int) -> None:
    text = "no column 'text' in reviews.csv, which has these: label, 本文は日本語です, author; name one by --text"
    rows = folded(text, width).split("\n")
    assert max(map(cell_len, rows)) <= width
    assert " ".join(rows).split() == text.split()


def test_commands_in_a_folded_line_stay_whole() -> None:
    quoted = folded("a column that is no table's (see `orchestrator schema task`) is refused", 40)
    assert "`orchestrator schema task`" in quoted
    behind = folded("what differs: orchestrator compare efed16ff8fc7 ba721d82f26d --all", 40)
    assert behind == "what differs:\n  orchestrator compare efed16ff8fc7 ba721d82f26d --all"
