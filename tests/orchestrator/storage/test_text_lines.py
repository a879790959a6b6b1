"""Lines of files: decompressed by their ending, ended by a line feed alone; of CSV and TSV, read back as written.

Alone: .venv/bin/pytest tests/orchestrator/storage/test_text_lines.py
"""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from orchestrator.base.errors import InputError
from orchestrator.storage.text_lines import csv_lines, stream_lines, tsv_lines
from orchestrator.tasks.table_files import read_rows
from orchestrator.tasks.text_files import BadRecords

TEXT = "\ufeffone\r\ntwo\u2028still\rtwo\n\nfour".encode() + b"\xe9"
LINES = ["one\r\n", "two\u2028still\rtwo\n", "\n", "four\udce9"]


Packer = Callable[[bytes], bytes]
PACKERS: list[tuple[str, Packer]] = [
    ("txt", bytes),
    ("gz", gzip.compress),
    ("xz", lzma.compress),
    ("zst", zstandard.ZstdCompressor().compress),
]


@pytest.mark.parametrize(("ending", "compress"), PACKERS)
def test_lines_end_at_line_feeds_whatever_the_file_is_packed_in(ending: str, compress: Packer, tmp_path: Path) -> None:
    path = tmp_path / f"lines.{ending}"
    path.write_bytes(compress(TEXT))
    assert list(stream_lines(str(path))) == LINES
    assert list(stream_lines(f"file://{path}")) == LINES


@pytest.mark.parametrize(("ending", "compress"), PACKERS[1:])
def test_a_file_that_is_cut_short_is_named(ending: str, compress: Packer, tmp_path: Path) -> None:
    path = tmp_path / f"lines.{ending}"
    path.write_bytes(compress(b"a line\n" * 1000)[:-12])
    with pytest.raises(InputError, match=rf"lines\.{ending}"):
        list(stream_lines(str(path)))


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
