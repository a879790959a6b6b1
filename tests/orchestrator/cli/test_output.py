"""How data is shown and written: `--output`, `--columns`, `--wide`, `--limit`; nothing that drives a terminal.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_output.py
"""

import csv
import io
import json
import math
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
import numpy as np
import pandas
import pytest

from orchestrator.base.console import is_terminal
from orchestrator.base.errors import InputError
from orchestrator.base.formatting import cell, printable
from orchestrator.cli.output import show_record, show_rows, write_output
from orchestrator.cli.reading import READING, check_output
from tests.orchestrator.cli.laboratory import Command, RecordedSweep, commands_below
from tests.waiting import PATIENCE_S

ROWS = [
    {"name": "a", "score": 0.5, "num": 3, "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "words": ["x", "y"]},
    {"name": "b\x1b[31m", "score": math.nan, "num": None, "at": None, "words": []},
]
COLUMNS = ["name", "score", "num", "at", "words"]
NAMED = [{"id": f"{number:012x}", "name": "n" * 30, "score": number / 7} for number in range(40)]


@contextmanager
def reading(**given: object) -> Iterator[None]:
    """A running command with these options of reading."""
    with click.Context(click.Command("any")) as context:
        context.meta[READING] = given
        yield


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "nan"),
        ("", "–"),
        (True, "yes"),
        (0.25, "0.2500"),
        (3.0, "3"),
        (5e-05, "5e-05"),
        ("\x1b[2Ja\u202eb", "�[2Ja�b"),
        (["a", 1], "a, 1"),
        ({"a": 1}, '{"a": 1}'),
        (np.float64(0.25), "0.2500"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02 03:04"),
    ],
)
def test_a_value_is_short_in_a_table(value: object, text: str) -> None:
    assert cell(value) == text


def test_a_table_for_a_stdout_that_the_shell_has_closed_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    show_rows([{"a": 1}], ["a"])
    assert not is_terminal(sys.stdout)


def test_a_piped_table_is_plain_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, COLUMNS)
    assert capsys.readouterr().out == (
        "name     score  num  at                words\n"
        "a       0.5000    3  2026-01-02 03:04  x, y\n"
        "b�[31m     nan    –  –                 –\n"
    )


def test_settings_keep_their_digits_and_each_measurement_has_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"accuracy": 0.52512, "learning_rate": 0.00001234, "tokens_per_s": 1234.56}
    rows = [{"params.rate": 0.00125, "metric": name, "value": value} for name, value in values.items()]
    show_rows(rows, ["params.rate", "value"])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["rate", "value"], ["0.00125", "0.5251"], ["0.00125", "1.234e-05"], ["0.00125", "1234.6"],
    ]  # fmt: skip
    show_record({"spec.learning_rate": 0.00125, "accuracy": 0.00125, "none": None})
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["spec.learning_rate", "0.00125"], ["accuracy", "0.0013"],
    ]  # fmt: skip


def test_json_has_null_for_what_is_not_there_and_a_word_for_nan(capsys: pytest.CaptureFixture[str]) -> None:
    with reading(form="json"):
        show_rows(ROWS, COLUMNS)
    first, second = json.loads(capsys.readouterr().out)
    assert first == {"name": "a", "score": 0.5, "num": 3, "at": "2026-01-02T03:04:05+00:00", "words": ["x", "y"]}
    assert (second["score"], second["num"], second["name"]) == ("NaN", None, "b\x1b[31m")


@pytest.mark.parametrize("form", ["json", "csv"])
def test_pandas_reads_nan_and_infinities_back_as_numbers(capsys: pytest.CaptureFixture[str], form: str) -> None:
    with reading(form=form):
        show_rows([{"a": value} for value in (0.5, math.nan, math.inf, -math.inf)], ["a"])
    read = pandas.read_json if form == "json" else pandas.read_csv
    frame = read(io.StringIO(capsys.readouterr().out))
    assert str(list(frame["a"])) == "[0.5, nan, inf, -inf]"


def test_csv_is_read_back_by_the_standard_reader(capsys: pytest.CaptureFixture[str]) -> None:
    with reading(form="csv"):
        show_rows([{"a": 'x,"y"\nz', "b": None}, {"a": [1], "b": 0.1}], ["a", "b"])
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines(keepends=True)))
    assert rows == [{"a": 'x,"y"\nz', "b": ""}, {"a": "[1]", "b": "0.1"}]


def test_a_files_ending_sets_the_format_and_the_option_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ({"output": "a.json"}, {"output": "a.csv"}, {"form": "json", "output": "a.txt"}):
        with reading(**given):
            show_rows(ROWS, COLUMNS)
    assert json.loads(Path("a.json").read_text()) == json.loads(Path("a.txt").read_text())
    assert Path("a.csv").read_text().startswith("name,score")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["wrote a.json", "wrote a.csv", "wrote a.txt"]


def test_no_rows_are_an_empty_list_for_machines_and_a_word_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    with reading(form="json"):
        show_rows([], ["a"], empty="nothing yet")
    assert capsys.readouterr() == ("[]\n", "")
    show_rows([], ["a"], empty="nothing yet")
    assert capsys.readouterr() == ("", "nothing yet\n")


def test_lines_survive_and_other_control_characters_do_not() -> None:
    assert printable("a\n\tb\x07\x9b") == "a\n\tb��"
    assert printable("a\nb", keep_lines=False) == "a b"


def shown_on_terminal(code: str, environment: dict[str, str]) -> str:
    """Output of a command on a terminal, from a fresh interpreter."""
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stdout=theirs, env=environment, timeout=PATIENCE_S, check=True)
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    return shown


def test_a_narrow_terminal_goes_without_spare_columns() -> None:
    code = """from orchestrator.cli.output import show_rows
row = {"name": "x" * 10, "long": "y" * 15, "r[k]": 1, "spared": "z" * 12}
show_rows([row], list(row), spare=["spared"])"""
    shown = shown_on_terminal(code, {**os.environ, "COLUMNS": "34"})
    assert "yyyyyyyyyyyyyyy" in shown
    assert "r[k]" in shown, "a name is no markup"
    assert "spared" not in shown


def test_an_output_that_is_a_link_a_pipe_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real.json")
    write_output(str(tmp_path / "link"), b"1")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real.json").read_bytes() == b"1"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_output(str(tmp_path / "pipe"), b"2")
    assert os.read(reader, 10) == b"2"
    os.close(reader)
    with pytest.raises(InputError, match="is a folder; name a file in it"):
        write_output(str(tmp_path), b"3")


def test_a_file_that_may_not_be_written_is_told_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match=r"out\.json cannot be written: permission denied"):
        write_output(str(tmp_path / "out.json"), b"{}")


def test_every_command_that_writes_takes_output() -> None:
    for words, member in commands_below().items():
        for option in (parameter for parameter in member.params if isinstance(parameter, click.Option)):
            if "--output" in option.opts:
                assert "-o" in option.opts, words
                assert option.callback is not None or str(option.metavar).endswith("FOLDER"), words


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "none", "none.txt"],
        ["evaluate", "none", "sst2"],
        ["leaderboard", "none"],
        ["init", "none.csv"],
        ["runs", "list"],
    ],
    ids=" ".join,
)
def test_a_folder_that_is_not_there_is_named_first_and_never_made(command: Command, words: list[str]) -> None:
    outcome = command(*words, "-o", "mistyped/out.csv")
    assert outcome.status == 2
    assert outcome.err.startswith("Error: mistyped/out.csv: there is no folder ")
    assert "make it first (mkdir -p), or name another file" in outcome.err
    assert not Path("mistyped").exists()


def test_standard_output_and_other_places_are_not_looked_at(command: Command) -> None:
    for output in ("s3://bucket/none/out.csv", "/dev/stdout"):
        assert "there is no folder" not in command("leaderboard", "none", "-o", output).err


@pytest.mark.parametrize("name", ["runs.parquet", "runs.xlsx", "runs.jsonl"])
def test_an_ending_that_no_format_has_is_refused_with_those_there_are(command: Command, name: str) -> None:
    for words in (["runs", "list"], ["runs", "show", "7f3a"], ["leaderboard"], ["cost"]):
        outcome = command(*words, "-o", name)
        assert (outcome.status, outcome.out) == (2, "")
        assert name in outcome.err
        assert ".json, .csv, .txt" in outcome.err
    assert command("runs", "list", "-f", "json", "-o", name).status == 0
    assert json.loads(Path(name).read_text()) == []


def test_a_dash_is_standard_output(command: Command) -> None:
    assert command("runs", "list", "-f", "csv", "-o", "-").out == command("runs", "list", "-f", "csv").out
    assert not Path("-").exists()


@pytest.mark.parametrize("option", ["--columns", "--limit", "--offset", "-o", "-f", "--task", "--home"])
def test_an_empty_value_is_refused(command: Command, option: str) -> None:
    outcome = command("runs", "list", option, "")
    assert (outcome.status, outcome.out) == (2, "")
    assert option in outcome.err


def test_a_file_in_this_folder_is_let_through_and_a_file_as_a_folder_is_not(command: Command, tmp_path: Path) -> None:
    assert command("runs", "list", "-o", str(tmp_path / "out.csv")).status == 0
    assert (tmp_path / "out.csv").exists()
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match=r"there is no folder .*taken"):
        check_output(str(tmp_path / "taken" / "out.csv"))


@pytest.fixture
def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stdout that says it is a terminal of 30 columns."""
    monkeypatch.setattr("orchestrator.cli.output.is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "30")


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


@pytest.mark.usefixtures("narrow_terminal")
def test_a_page_on_a_terminal_says_how_many_more_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(NAMED, ["id"], page=3)
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 4
    assert captured.err == "3 of 40 are shown; all of them: --limit all\n"


def test_a_pipe_gets_every_row_and_column(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(NAMED, ["id", "name", "score"], spare=["name"], page=3)
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 41
    assert captured.out.splitlines()[1].split()[1] == "n" * 30
    assert captured.err == ""


@pytest.mark.usefixtures("narrow_terminal")
def test_a_narrow_terminal_is_told_what_it_does_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(NAMED[:1], ["id", "name", "score"], spare=["name"])
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].split() == ["000000000000", "0"]
    assert captured.err == "left out: name; --columns name shows these; --wide shows all\n"


@pytest.mark.usefixtures("narrow_terminal")
def test_wide_shows_everything_on_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with reading(wide=True):
        show_rows(NAMED[:1], ["id", "name", "score"], spare=["name"])
    assert capsys.readouterr().out.splitlines()[1].split() == ["000000000000", "n" * 30, "0"]


@pytest.mark.parametrize(("path", "command"), commands_below().items())
def test_a_command_with_a_format_has_all_options_of_reading(path: str, command: click.Command) -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    forms = [parameter.type for parameter in command.params if parameter.name == "form"]
    shows_tables = any(isinstance(form, click.Choice) and "table" in form.choices for form in forms)
    assert not shows_tables or options >= {"--columns", "--wide", "--limit", "--offset", "--raw"}, path
