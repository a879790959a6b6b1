"""The question before files are removed.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_confirming.py
"""

import io
import sys

import click
import pytest

from orchestrator.cli.confirming import is_confirmed


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Answer that a person types to a question."""
    typed = io.StringIO()
    monkeypatch.setattr(sys, "stdin", typed)
    monkeypatch.setattr("orchestrator.cli.confirming.is_terminal", lambda stream: True)
    return typed


def test_a_person_is_asked_once_on_stderr(answer: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    answer.write("y\n")
    answer.seek(0)
    assert is_confirmed("remove", "2 runs", dry_run=False, yes=False)
    shown = capsys.readouterr()
    assert (shown.out, "remove 2 runs?" in shown.err) == ("", True)


def test_an_answer_that_is_not_yes_ends_the_command(answer: io.StringIO) -> None:
    with pytest.raises(click.Abort):
        is_confirmed("remove", "2 runs", dry_run=False, yes=False)


def test_a_dry_run_goes_before_yes(capsys: pytest.CaptureFixture[str]) -> None:
    assert not is_confirmed("delete", "3 items", dry_run=True, yes=True)
    assert capsys.readouterr().err == "3 items would be deleted\n"
