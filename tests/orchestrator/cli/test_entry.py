"""How the command line ends: exit statuses, one message per error, help with an example, options wherever they stand.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_entry.py
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from bert_core.errors import CheckpointError
from orchestrator.base.errors import (
    ClusterError,
    NotFoundError,
    RegistryError,
    RunFailedError,
    RunStoppedError,
    SpecError,
    StopRequested,
)
from orchestrator.cli.entry import Interrupted, run_command_line
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.tree import HINTS, cli
from tests.orchestrator.cli.laboratory import Command, commands_below
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("path", commands_below())
def test_help_ends_in_an_example_of_the_command(path: str, command: Command) -> None:
    outcome = command(*path.split(), "--help")
    assert outcome.status == 0
    assert outcome.err == ""
    last = outcome.out.rstrip().splitlines()
    assert max(map(len, last)) <= 80
    assert "--registry, --address, --debug; see orchestrator -h" in outcome.out
    assert "Example:" in last[-3:] or "Example:" in last[-2:]
    assert f"orchestrator {path}" in outcome.out.partition("Example:")[2]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["rnu"], "did you mean run"),
        (["runs", "lst"], "did you mean list?"),
        (["lineage"], "did you mean models lineage?"),
        (["logs"], "did you mean runs logs?"),
        (["runs", "stop"], "did you mean `orchestrator stop`?"),
        (["runs", "ls"], "`orchestrator runs list`"),
        (["--json", "runs", "list"], "`-f json`, after the command"),
        (["runs", "list", "--limti", "3"], "--limit"),
        (["--registri", "x", "doctor"], "--registry"),
        (["schema", "swep"], "did you mean sweep?"),
    ],
)
def test_a_wrong_spelling_is_wrong_usage_and_names_the_nearest(
    command: Command, arguments: list[str], hint: str
) -> None:
    outcome = command(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert hint in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("words", list(HINTS))
def test_a_word_of_another_program_names_what_to_use_here(command: Command, words: str) -> None:
    """Each is no command or option of ours, and its hint names one that is."""
    outcome = command(*(["runs", "list", words] if words.startswith("-") else words.split()))
    assert (outcome.status, outcome.out) == (2, "")
    beginnings = (words, words.split()[0], " ".join(words.split()[:2]))
    key = next(key for key in beginnings if key in HINTS)
    assert HINTS[key] in " ".join(outcome.err.split())


def test_an_option_that_the_help_does_not_show_is_not_suggested(command: Command) -> None:
    outcome = command("plan", "reviews.yaml", "--minutes", "3")
    assert outcome.status == 2
    assert "--limit" not in outcome.err


def test_a_last_argument_is_pointed_at_the_option(command: Command) -> None:
    outcome = command("runs", "plot", "7f3a", "out.png")
    assert outcome.status == 2
    assert "-o" in outcome.err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RunFailedError("it failed"), 1),
        (RunStoppedError("it was stopped"), 1),
        (SpecError("steps is 0"), 2),
        (CheckpointError("cut short"), 2),
        (NotFoundError("no such run"), 3),
        (RegistryError("cannot be opened"), 4),
        (ClusterError("cannot be reached"), 5),
        (PermissionError(13, "Permission denied", "/root/x"), 2),
        (ImportError("Install s3fs to access S3"), 2),
        (ImportError("surprise"), 1),
        (KeyError("surprise"), 1),
        (OSError("surprise"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_error_is_one_message_and_the_contracts_status(
    error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command(cls=GlobalOptionsCommand)
    def fail() -> None:
        raise error

    monkeypatch.setitem(cli.commands, "fail", fail)
    assert run_command_line(["fail"]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.startswith("Error: ") for line in captured.err.splitlines() if line] == [True]
    assert "Traceback" not in captured.err
    if "surprise" in str(error):
        assert "--debug" in captured.err
    assert run_command_line(["--debug", "fail"]) == status
    assert "Traceback" in capsys.readouterr().err


def test_control_characters_in_a_message_do_not_reach_the_terminal(command: Command) -> None:
    outcome = command("run", "no\x1b[2Jsuch.yaml")
    assert outcome.status == 2
    assert "\x1b" not in outcome.err


def test_global_options_stand_before_or_after_the_command(command: Command, tmp_path: Path) -> None:
    for arguments in (
        ["--home", str(tmp_path / "a"), "db", "upgrade"],
        ["db", "upgrade", "--home", str(tmp_path / "b")],
    ):
        assert command(*arguments).status == 0
    assert (tmp_path / "a" / "registry.sqlite").exists()
    assert (tmp_path / "b" / "registry.sqlite").exists()


@pytest.mark.parametrize(
    ("interruption", "status", "said"),
    [
        (Interrupted(signal.SIGTERM), 143, "Interrupted by SIGTERM (`kill`)\n"),
        (KeyboardInterrupt(), 130, "Interrupted\n"),
        (click.Abort(), 130, "Interrupted\n"),
        (StopRequested("7f3a"), 1, "Stopped by `orchestrator stop 7f3a`\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_an_interruption_is_no_error_and_has_the_contracts_status(
    interruption: BaseException,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @click.command(cls=GlobalOptionsCommand)
    def leave() -> None:
        raise interruption

    monkeypatch.setitem(cli.commands, "leave", leave)
    assert run_command_line(["leave"]) == status
    assert capsys.readouterr().err == said


SLEEPER = """
import click, signal, sys, threading
from orchestrator.cli import entry
from orchestrator.cli.frame import GlobalOptionsCommand
@click.command(cls=GlobalOptionsCommand)
def wait():
    try:
        signal.raise_signal(signal.Signals[sys.argv[2]])
        threading.Event().wait()
    finally:
        print("end state written")
        for name in sys.argv[3:]:
            signal.raise_signal(signal.Signals[name])
            print("went on", flush=True)
entry.cli.add_command(wait)
wait.allow_extra_args = True
wait.context_settings = {"allow_extra_args": True}
entry.main()
"""


def run_python(code: str, *arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """A fresh interpreter that has run some code."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": PATIENCE_S, **options}
    return subprocess.run([sys.executable, "-c", code, *arguments], **options)


@pytest.mark.parametrize(
    ("name", "status", "by"),
    [
        ("SIGINT", 130, "Ctrl-C"),
        ("SIGTERM", 143, "SIGTERM (`kill`)"),
        ("SIGHUP", 129, "SIGHUP (the terminal was closed)"),
    ],
)
def test_a_signal_unwinds_and_ends_with_its_status(name: str, status: int, by: str) -> None:
    heeding = f"import signal; signal.signal(signal.{name}, signal.SIG_DFL)\n"  # tests under `nohup` ignore SIGHUP
    done = run_python(heeding + SLEEPER, "wait", name)
    assert done.returncode == status
    assert done.stdout == "end state written\n"
    assert done.stderr.strip().splitlines() == [f"Interrupted by {by}"]


def test_a_signal_is_answered_at_once_while_a_run_is_at_work() -> None:
    at_work = "from orchestrator.cli.messages import at_work\nat_work.append('go on with: …')\n"
    done = run_python(at_work + SLEEPER, "wait", "SIGINT")
    assert done.stderr.splitlines() == ["stopping; Ctrl-C again leaves at once", "Interrupted by Ctrl-C"]


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT"])
def test_a_signal_that_was_ignored_at_the_start_stays_so(name: str) -> None:
    """`nohup` ignores SIGHUP, and a script's `&` SIGINT, for what they start."""
    ignoring = f"import signal; signal.signal(signal.{name}, signal.SIG_IGN)\n"
    code = SLEEPER.replace("threading.Event().wait()", "print('went on')")
    done = run_python(ignoring + code, "wait", name)
    assert (done.returncode, done.stdout) == (0, "went on\nend state written\n")
    done = run_python(ignoring + code, "wait", "SIGTERM", name)
    assert (done.returncode, done.stdout) == (143, "end state written\nwent on\n")


@pytest.mark.parametrize(
    ("second", "same_signal_s", "status", "goes_on"), [("SIGTERM", 0.0, 143, False), ("SIGINT", 60.0, 130, True)]
)
def test_a_second_signal_leaves_at_once(second: str, same_signal_s: float, status: int, goes_on: bool) -> None:
    """One that comes twice at once is one signal."""
    code = SLEEPER.replace("entry.main()", f"entry.SAME_SIGNAL_S = {same_signal_s}\nentry.main()")
    done = run_python(code, "wait", "SIGINT", second)
    assert (done.returncode, "went on" in done.stdout) == (status, goes_on)


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = "import sys; sys.argv = ['orchestrator', 'schema', 'sweep']; from orchestrator.cli import main; main()"
    reading, writing = os.pipe()
    os.close(reading)
    done = run_python(code, stdout=writing)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 0


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "--help"], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout.startswith("Usage: orchestrator ")
