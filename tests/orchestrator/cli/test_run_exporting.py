"""`runs export`, `report`, and tables and CSV that hold hostile or endless texts.

pytest tests/orchestrator/cli/test_run_exporting.py
"""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.base.settings import Settings
from orchestrator.cli.output import safe_field
from orchestrator.registry import Registry
from tests.orchestrator.cli.laboratory import Command, RecordedSweep
from tests.orchestrator.registry.samples import new_run

FORMULAS = ["=cmd|'/c calc'!A1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "  =1", "\r=1", "＝1", '=HYPERLINK("http://x")']


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_becomes_text(text: str) -> None:
    assert safe_field(text).startswith("'")


@pytest.mark.parametrize("value", ["-0.5", "+1e-5", "-inf", "learning-rate", "a=b", "", -0.5, None, True])
def test_numbers_and_plain_texts_stay(value: object) -> None:
    assert safe_field(value) == value


@given(st.text())
def test_no_text_begins_as_a_formula_or_holds_a_control_character(text: str) -> None:
    safe = safe_field(text)
    assert not safe.strip(" \n\t\r").startswith(("=", "@"))
    assert not {chr(code) for code in (*range(9), 11, 12, *range(14, 32), 127)} & set(safe)


def test_csv_is_safe_for_spreadsheets_unless_asked_otherwise(command: Command, home: Path, tmp_path: Path) -> None:
    with Registry(Settings.from_options().registry) as registry:
        new_run(registry, name="=cmd|'/c calc'!A1 \x07")
    outcome = command("runs", "list", "-f", "csv")
    assert "'=cmd|" in outcome.out
    assert "\x07" not in outcome.out
    assert "\x07" in command("runs", "list", "-f", "csv", "--raw").out
    for options, name in (((), "'=cmd|'/c calc'!A1 �"), (("--raw",), "=cmd|'/c calc'!A1 \x07")):
        assert command("runs", "export", "-o", "runs.csv", *options).status == 0
        with (tmp_path / "runs.csv").open(newline="") as file:
            assert [row["name"] for row in csv.DictReader(file)] == [name]


@pytest.mark.heavy
def test_an_endless_name_is_shortened_in_tables_alone(command: Command, home: Path) -> None:
    with Registry(Settings.from_options().registry) as registry:
        run_id = new_run(registry, name="x" * 1_000_000)
        new_run(registry, name="short")
    assert len(command("runs", "list").out) < 3_000
    assert len(command("runs", "show", run_id).out) < 20_000
    assert len(command("runs", "list", "--wide").out) > 1_000_000
    assert len(command("runs", "list", "-f", "json").out) > 1_000_000


def test_some_runs_are_written_with_their_trials(
    command: Command, recorded_sweep: RecordedSweep, tmp_path: Path
) -> None:
    with Registry(Settings.from_options().registry) as registry:
        new_run(registry, name="another")
    assert "6 runs and trials" in command("runs", "export", recorded_sweep.run_id[:6], "-o", "some.csv").err
    assert "7 runs and trials" in command("runs", "export", "-o", "all.csv").err
    assert command("runs", "export").status == 2
    assert command("runs", "export", "zzzz", "-o", "x.csv").status == 3
    assert command("runs", "export", "-o", "runs.txt").status == 2


def test_runs_are_written_for_tensorboard(command: Command, recorded_sweep: RecordedSweep, tmp_path: Path) -> None:
    outcome = command("runs", "export", recorded_sweep.run_id[:6], "--to", "tensorboard", "-o", "events")
    assert outcome.status == 0
    assert "look: tensorboard --logdir events" in outcome.err
    assert len(list((tmp_path / "events").rglob("events.out.tfevents.*"))) == 6
    (tmp_path / "file").write_text("")
    assert command("runs", "export", recorded_sweep.run_id, "--to", "tensorboard", "-o", "file").status == 2


def test_a_report_is_one_file_with_the_run_in_it(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("report", recorded_sweep.run_id[:6], "-o", "report.html")
    assert (outcome.status, outcome.out) == (0, "")
    assert "wrote report.html; open it in a browser" in outcome.err
    assert command("report", "zzzz", "-o", "other.html").status == 3
    assert not Path("other.html").exists()
    page = Path("report.html").read_text()
    assert recorded_sweep.run_id in page
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in page
