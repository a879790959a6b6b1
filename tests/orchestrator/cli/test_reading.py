"""The options that every command has which shows rows: `--columns`, `--wide`, `--limit`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_reading.py
"""

import csv
import json

import click
import pytest

from orchestrator.cli.output import show_rows
from tests.orchestrator.cli.laboratory import Command, RecordedSweep, commands_below

ROWS = [{"id": f"{number:012x}", "name": "n" * 30, "score": number / 7} for number in range(40)]


@pytest.fixture
def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stdout that says it is a terminal of 30 columns."""
    monkeypatch.setattr("orchestrator.cli.output.is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "30")


def test_columns_are_shown_in_the_order_asked_for(command: Command, recorded_sweep: RecordedSweep) -> None:
    out = command("runs", "list", "--columns", "score,id").out
    assert out.split() == ["score", "id", "0.8500", recorded_sweep.run_id]


def test_columns_may_be_some_that_the_command_does_not_show_by_itself(
    command: Command, recorded_sweep: RecordedSweep
) -> None:
    rows = list(csv.DictReader(command("runs", "list", "--columns", "id,experiment", "-f", "csv").out.splitlines()))
    assert rows == [{"id": recorded_sweep.run_id, "experiment": "first"}]


def test_an_unknown_column_is_answered_with_the_nearest(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("runs", "list", "--columns", "scoer")
    assert (outcome.status, outcome.out) == (2, "")
    assert "score" in outcome.err
    assert command("runs", "list", "--columns", "ID").out == command("runs", "list", "--columns", "id").out


def test_a_records_fields_are_columns(command: Command, recorded_sweep: RecordedSweep) -> None:
    out = command("runs", "show", recorded_sweep.run_id, "--columns", "kind,state").out
    assert out == "kind   sweep\nstate  COMPLETED\n"


def test_a_limit_is_obeyed_by_commands_without_one_of_their_own(
    command: Command, recorded_sweep: RecordedSweep
) -> None:
    assert len(json.loads(command("runs", "trials", recorded_sweep.run_id, "--limit", "2", "-f", "json").out)) == 2


@pytest.mark.usefixtures("narrow_terminal")
def test_a_page_on_a_terminal_says_how_many_more_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, ["id"], None, None, page=3)
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 4
    assert captured.err == "3 of 40 are shown; all of them: --limit 40\n"


def test_a_pipe_gets_every_row_and_column(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, ["id", "name", "score"], None, None, spare=["name"], page=3)
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 41
    assert captured.out.splitlines()[1].split()[1] == "n" * 30
    assert captured.err == ""


@pytest.mark.usefixtures("narrow_terminal")
def test_a_narrow_terminal_is_told_what_it_does_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS[:1], ["id", "name", "score"], None, None, spare=["name"])
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].split() == ["000000000000", "0"]
    assert captured.err == "left out: name; --columns name shows these, --wide all\n"


@pytest.mark.usefixtures("narrow_terminal")
def test_wide_shows_everything_on_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with click.Context(click.Command("any")) as context:
        context.meta["orchestrator.reading"] = {"wide": True}
        show_rows(ROWS[:1], ["id", "name", "score"], None, None, spare=["name"])
    assert capsys.readouterr().out.splitlines()[1].split() == ["000000000000", "n" * 30, "0"]


@pytest.mark.parametrize(("path", "command"), commands_below().items())
def test_a_command_with_a_format_has_all_options_of_reading(path: str, command: click.Command) -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    forms = [parameter.type for parameter in command.params if parameter.name == "form"]
    shows_tables = any(isinstance(form, click.Choice) and "table" in form.choices for form in forms)
    assert not shows_tables or options >= {"--columns", "--wide", "--output"}, path


def test_an_empty_query_is_a_slip_of_the_pen(command: Command, recorded_sweep: RecordedSweep) -> None:
    for text in ("", "  "):
        outcome = command("query", text)
        assert (outcome.status, outcome.out) == (2, "")
        assert "the query is empty; give a condition" in outcome.err
    assert recorded_sweep.run_id in command("query", "", "--since", "1d").out
