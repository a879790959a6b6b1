"""Command `report`: the file that it writes, and what it refuses.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_report.py
"""

from pathlib import Path

from tests.orchestrator.cli.laboratory import Command, RecordedSweep


def test_a_report_is_one_file_with_the_run_in_it(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("report", recorded_sweep.run_id[:6], "-o", "report.html")
    assert (outcome.status, outcome.out) == (0, "")
    assert "wrote report.html; open it in a browser" in outcome.err
    page = Path("report.html").read_text()
    assert recorded_sweep.run_id in page
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in page


def test_an_unknown_run_is_told_and_nothing_written(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("report", "zzzz", "-o", "report.html")
    assert outcome.status == 3
    assert "zzzz" in outcome.err
    assert not Path("report.html").exists()


def test_a_place_that_cannot_be_written_is_told_before_anything_is_read(command: Command) -> None:
    Path("folder").mkdir()
    outcome = command("report", "zzzz", "-o", "folder")
    assert outcome.status == 2
    assert "folder is a folder; name a file in it" in outcome.err
