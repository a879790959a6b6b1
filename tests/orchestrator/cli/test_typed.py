"""What a person types: ages and times, and the answer before files are removed.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_typed.py
"""

import io
import sys
import time
from datetime import UTC, datetime

import click
import pytest

from orchestrator.base.errors import InputError
from orchestrator.cli.messages import is_confirmed
from orchestrator.cli.reading import age_s, time_of
from orchestrator.registry.selection import as_time


def test_an_age_is_seconds_hours_or_days() -> None:
    assert [age_s(age, "--since") for age in ("30s", "12h", "1.5d")] == [30, 12 * 3600, 36 * 3600]


@pytest.mark.parametrize("age", ["", "12", "d", "-3d", "3 d", "yesterday", "99999d", "2026-13-40"])
def test_what_is_no_age_and_no_day_is_refused_by_the_options_name(age: str) -> None:
    with pytest.raises(InputError, match="--since"):
        time_of(age)


def test_a_day_begins_at_midnight_in_utc_as_in_queries_and_a_zone_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as far_east:
        far_east.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        found = time_of("2026-11-22")
    time.tzset()
    assert found == as_time("2026-11-22") == datetime(2026, 11, 22, tzinfo=UTC)
    assert time_of("2026-11-22T10:00+00:00") == datetime(2026, 11, 22, 10, tzinfo=UTC)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Answer that a person types to a question."""
    typed = io.StringIO()
    monkeypatch.setattr(sys, "stdin", typed)
    monkeypatch.setattr("orchestrator.cli.messages.is_terminal", lambda stream: True)
    return typed


def test_a_person_is_asked_once_on_stderr(answer: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    answer.write("y\n")
    answer.seek(0)
    assert is_confirmed("remove", "2 runs", dry_run=False, yes=False)
    shown = capsys.readouterr()
    assert (shown.out, "remove 2 runs?" in shown.err) == ("", True)
    with pytest.raises(click.Abort):
        is_confirmed("remove", "2 runs", dry_run=False, yes=False)


def test_a_dry_run_goes_before_yes(capsys: pytest.CaptureFixture[str]) -> None:
    assert not is_confirmed("delete", "3 items", dry_run=True, yes=True)
    assert capsys.readouterr().err == "3 items would be deleted\n"
