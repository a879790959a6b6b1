"""How data is shown: tables that stay readable, JSON and CSV that machines read, nothing that drives a terminal.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_output.py
"""

import csv
import json
import math
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from rich.text import Text

from orchestrator.cells import cell, printable
from orchestrator.cli.output import show_lines, show_record, show_rows, write_output
from orchestrator.errors import InputError
from orchestrator.progress import is_terminal
from tests.waiting import PATIENCE_S

ROWS = [
    {"name": "a", "score": 0.5, "num": 3, "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "words": ["x", "y"]},
    {"name": "b\x1b[31m", "score": math.nan, "num": None, "at": None, "words": []},
]
COLUMNS = ["name", "score", "num", "at", "words"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        ("", "–"),
        ([], "–"),
        (True, "yes"),
        (0.25, "0.2500"),
        (12.5, "12.50"),
        (123.44, "123.4"),
        (3.0, "3"),
        (5e-05, "5e-05"),
        (math.inf, "inf"),
        (7, "7"),
        ("a\nb", "a b"),
        ("\x1b[2Ja\u202eb", "�[2Ja�b"),
        (["a", 1], "a, 1"),
        ({"a": 1}, '{"a": 1}'),
        (np.float64(0.25), "0.2500"),
        (np.int64(3), "3"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02 03:04"),
    ],
)
def test_a_value_is_short_in_a_table(value: object, text: str) -> None:
    assert cell(value) == text


def test_a_table_for_a_stdout_that_the_shell_has_closed_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    show_rows([{"a": 1}], ["a"], None, None)
    show_lines([Text("line")])
    assert not is_terminal(sys.stdout)


def test_a_piped_table_is_plain_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, COLUMNS, None, None)
    assert capsys.readouterr().out == (
        "name     score  num  at                words\n"
        "a       0.5000    3  2026-01-02 03:04  x, y\n"
        "b�[31m       –    –  –                 –\n"
    )


def test_settings_keep_the_digits_that_were_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    rates = [0.00125, 1.234e-5, 4.0]
    rows = [{"params.rate": rate, "score": 0.5} for rate in rates]
    show_rows(rows, ["params.rate", "score"], None, None)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["rate", "score"], ["0.00125", "0.5000"], ["1.234e-05", "0.5000"], ["4", "0.5000"],
    ]  # fmt: skip
    show_record({"spec.learning_rate": 0.00125, "recipe.warmup_ratio": 0.1, "accuracy": 0.00125}, None, None)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["0.00125", "0.1", "0.0013"]


def test_each_measurement_has_its_own_number_of_decimals(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"name": "accuracy", "value": 0.52512},
        {"name": "learning_rate", "value": 0.00001234},
        {"name": "accuracy", "value": 0.5},
        {"name": "tokens_per_s", "value": 1234.56},
    ]
    show_rows(rows, ["name", "value"], None, None, measurement=lambda row: str(row["name"]))
    texts = [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]]
    assert texts == ["0.5251", "1.234e-05", "0.5000", "1234.6"]


def test_scores_of_each_metric_have_their_own_number_of_decimals(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"metric": "f1", "mean": 0.8820}, {"metric": "f1", "mean": 0.8816}, {"metric": "perplexity", "mean": 50.5}]
    show_rows(rows, ["mean"], None, None)
    assert capsys.readouterr().out.split() == ["mean", "0.8820", "0.8816", "50.50"]


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, COLUMNS, "json", None)
    first, second = json.loads(capsys.readouterr().out)
    assert first == {"name": "a", "score": 0.5, "num": 3, "at": "2026-01-02T03:04:05+00:00", "words": ["x", "y"]}
    assert (second["score"], second["num"], second["name"]) == (None, None, "b\x1b[31m")


def test_csv_is_read_back_by_the_standard_reader(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([{"a": 'x,"y"\nz', "b": None}, {"a": [1], "b": 0.1}], ["a", "b"], "csv", None)
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines(keepends=True)))
    assert rows == [{"a": 'x,"y"\nz', "b": ""}, {"a": "[1]", "b": "0.1"}]


def test_csv_quotes_a_carriage_return_and_ends_lines_with_a_line_feed(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([{"a": "x\ry", "b": 1}], ["a", "b"], "csv", None)
    assert capsys.readouterr().out == 'a,b\n"x\ry",1\n'


def test_a_files_ending_sets_the_format_and_the_option_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    show_rows(ROWS, COLUMNS, None, "a.json")
    show_rows(ROWS, COLUMNS, None, "a.csv")
    show_rows(ROWS, COLUMNS, "json", "a.txt")
    assert json.loads(Path("a.json").read_text()) == json.loads(Path("a.txt").read_text())
    assert Path("a.csv").read_text().startswith("name,score")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["wrote a.json", "wrote a.csv", "wrote a.txt"]


def test_no_rows_are_an_empty_list_for_machines_and_a_word_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([], ["a"], "json", None, empty="nothing yet")
    assert capsys.readouterr() == ("[]\n", "")
    show_rows([], ["a"], None, None, empty="nothing yet")
    assert capsys.readouterr() == ("", "nothing yet\n")


def test_a_record_leaves_out_what_has_no_value_except_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    show_record({"a": 1, "bc": None}, None, None)
    assert capsys.readouterr().out == "a   1\n"
    show_record({"a": 1, "bc": None}, "json", None)
    assert json.loads(capsys.readouterr().out) == {"a": 1, "bc": None}


def test_lines_survive_and_other_control_characters_do_not() -> None:
    assert printable("a\n\tb\x07\x9b") == "a\n\tb��"
    assert printable("a\nb", keep_lines=False) == "a b"


def test_a_narrow_terminal_goes_without_spare_columns() -> None:
    code = """from orchestrator.cli.output import show_rows
row = {"name": "x" * 10, "long": "y" * 15, "r[k]": 1, "spared": "z" * 12}
show_rows([row], list(row), None, None, spare=["spared"])"""
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", code], stdout=theirs, env={**os.environ, "COLUMNS": "34"}, timeout=PATIENCE_S, check=True
    )
    os.close(theirs)
    shown = os.read(ours, 4096)
    os.close(ours)
    assert b"yyyyyyyyyyyyyyy" in shown
    assert b"r[k]" in shown, "a name is no markup"
    assert b"spared" not in shown


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}])
def test_styled_lines_have_colors_on_a_terminal_that_wants_them(environment: dict[str, str]) -> None:
    code = """from rich.text import Text
from orchestrator.cli.output import show_lines
show_lines([Text("a [b] " * 20, style="cyan")])"""
    wanted = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", code], stdout=theirs, env=wanted | environment, timeout=PATIENCE_S, check=True
    )
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert "a [b] " * 20 in shown, "a line is neither wrapped nor read as markup"
    assert ("\x1b[36m" in shown) == (not environment)


def test_styled_lines_are_plain_in_a_pipe_and_in_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = [Text("a", style="cyan"), Text("b")]
    show_lines(lines)
    assert capsys.readouterr().out == "a\nb\n"
    show_lines(lines, str(tmp_path / "lines.txt"))
    assert (tmp_path / "lines.txt").read_text() == "a\nb\n"


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


def test_a_file_that_may_not_be_written_is_told_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, data: bytes) -> str:
        raise PermissionError(13, "Permission denied", "nowhere/.out.json.ee42ebbb.tmp")

    monkeypatch.setattr("orchestrator.storage.write_bytes", refuse)
    with pytest.raises(InputError, match=r"^nowhere/out\.json cannot be written: permission denied; name another"):
        write_output("nowhere/out.json", b"{}")
