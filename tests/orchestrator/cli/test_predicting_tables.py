"""`predict` of tables: which columns are read as text, and what comes back.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_predicting_tables.py
"""

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from tests.orchestrator.cli.laboratory import Command

ROWS = [["text", "label", "id"], ["cats rest", "no", "a"], ["rain, falls", "yes", "b"]]


@pytest.fixture
def table(home: Path) -> Path:
    """A labeled CSV file in the current folder."""
    path = Path("rows.csv").absolute()
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(ROWS)
    return path


def _prediction(command: Command, classifier: str, text: str) -> dict[str, object]:
    Path("one.txt").write_text(text + "\n")
    answer: dict[str, object] = json.loads(command("predict", classifier, "one.txt").out)
    return answer


def test_a_csv_file_comes_back_with_two_more_columns(command: Command, classifier: str, table: Path) -> None:
    rows = list(csv.DictReader(command("predict", classifier, "rows.csv").out.splitlines()))
    assert [list(row) for row in rows] == [["text", "label", "id", "prediction", "score"]] * 2
    assert [[row["text"], row["label"], row["id"]] for row in rows] == ROWS[1:]
    for row in rows:
        line = _prediction(command, classifier, row["text"])
        assert row["prediction"] == line["label"]
        assert float(row["score"]) == pytest.approx(max(line["probabilities"].values()))  # type: ignore[attr-defined]


def test_a_tsv_file_comes_back_as_tsv_and_an_ending_asks_for_json_lines(
    command: Command, classifier: str, home: Path
) -> None:
    Path("rows.tsv").write_text('text\tid\n"cats" rest\t1\n')
    header, row = command("predict", classifier, "rows.tsv").out.splitlines()
    assert header == "text\tid\tprediction\tscore"
    assert row.startswith('"cats" rest\t1\t')
    assert command("predict", classifier, "rows.tsv", "-o", "answers.jsonl").status == 0
    assert list(json.loads(Path("answers.jsonl").read_text())) == ["text", "id", "prediction", "score"]


def test_a_table_from_a_pipe_is_refused_before_its_header_is_answered(
    command: Command, classifier: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes())))
    outcome = command("predict", classifier)
    assert (outcome.status, outcome.out) == (2, "")
    assert "the first line of stdin names the columns 'text', 'label', 'id'; a table is read from a file" in outcome.err


def test_what_stands_between_columns_stays(command: Command, classifier: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('text;note\n"cats; rest";a,b\n')
    command("predict", classifier, "rows.csv", "-o", "answers.csv")
    lines = (tmp_path / "answers.csv").read_text().splitlines()
    assert lines[0] == "text;note;prediction;score"
    assert lines[1].startswith('"cats; rest";a,b;')
    assert command("predict", classifier, "rows.csv", "-f", "csv").out.startswith("text,note,prediction,score\n")


def test_a_text_that_tsv_cannot_hold_is_named_and_nothing_is_written(
    command: Command, classifier: str, home: Path
) -> None:
    Path("rows.csv").write_text('text,id\n"cats\trest",1\n')
    outcome = command("predict", classifier, "rows.csv", "-o", "answers.tsv")
    assert outcome.status == 2
    assert "a value of 'text' has a tab or a line end, which TSV cannot hold: 'cats\\trest'" in outcome.err
    assert "write .csv or .jsonl" in outcome.err
    assert not Path("answers.tsv").exists()


def test_a_text_column_is_named_where_it_has_another_name(command: Command, classifier: str, home: Path) -> None:
    Path("rows.csv").write_text("title,body\ncats rest,rain falls\n")
    outcome = command("predict", classifier, "rows.csv")
    assert (outcome.status, outcome.out) == (2, "")
    assert "rows.csv has no column 'text', it has 'title', 'body'; name the text by --text-column" in outcome.err
    (row,) = csv.DictReader(
        command("predict", classifier, "rows.csv", "--text-column", "title", "--text-column", "body").out.splitlines()
    )
    assert row["prediction"] == _prediction(command, classifier, "cats rest\train falls")["label"]


def test_an_answer_replaces_no_column(command: Command, classifier: str, home: Path) -> None:
    Path("rows.csv").write_text("text,score\ncats rest,3\n")
    assert (
        "has a column 'score' already, which the answer would replace" in command("predict", classifier, "rows.csv").err
    )


def test_a_text_column_needs_a_table(command: Command, classifier: str, home: Path) -> None:
    Path("lines.txt").write_text("cats rest\n")
    assert "lines.txt is none" in command("predict", classifier, "lines.txt", "--text-column", "a").err
    assert "stdin is read as lines" in command("predict", classifier, "--text-column", "a").err
