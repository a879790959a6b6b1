"""Lines of CSV and TSV: what is written is read back.

Alone: pytest tests/orchestrator/storage/test_delimited_lines.py
"""

from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.storage.delimited_lines import csv_lines, tsv_lines
from orchestrator.tasks.table_files import read_rows
from orchestrator.tasks.text_files import BadRecords

NAMES = ("text", "label")


@pytest.mark.parametrize("text", ["a\rb", "\r", "a\r", 'a,"b"\nc', "", " a ", "a\tb;c|d", "\x85\u2028"])
def test_a_csv_field_is_read_back_as_it_was_written(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("".join(csv_lines([NAMES, (text, "x"), ("next", text)])).encode())
    rows = [values for _, values in read_rows(str(path), NAMES, BadRecords(str(path), "error"))]
    assert rows == [(text, "x"), ("next", text)]


def test_a_tsv_field_is_read_back_without_quotation_marks(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes("".join(tsv_lines(NAMES, [NAMES, ('"a" b', "x"), ("c\rd", None)])).encode())
    rows = [values for _, values in read_rows(str(path), NAMES, BadRecords(str(path), "error"))]
    assert rows == [('"a" b', "x"), ("c\rd", "")]


@pytest.mark.parametrize("text", ["a\tb", "a\nb"])
def test_a_field_that_tsv_cannot_hold_is_named_with_its_column(text: str) -> None:
    with pytest.raises(InputError, match="a value of"):
        list(tsv_lines(NAMES, [(text, "x")]))
