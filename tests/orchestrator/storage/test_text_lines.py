"""Lines of files: decompressed by their ending, ended by a line feed alone.

Alone: .venv/bin/pytest tests/orchestrator/storage/test_text_lines.py
"""

import gzip
import lzma
from pathlib import Path

import pytest
import zstandard

from orchestrator.errors import InputError
from orchestrator.storage.text_lines import stream_lines

TEXT = "\ufeffone\r\ntwo\u2028still\rtwo\n\nfour".encode() + b"\xe9"
LINES = ["one\r\n", "two\u2028still\rtwo\n", "\n", "four\udce9"]


@pytest.mark.parametrize(
    ("ending", "compress"),
    [("txt", bytes), ("gz", gzip.compress), ("xz", lzma.compress), ("zst", zstandard.ZstdCompressor().compress)],
)
def test_lines_end_at_line_feeds_whatever_the_file_is_packed_in(ending: str, compress: object, tmp_path: Path) -> None:
    path = tmp_path / f"lines.{ending}"
    path.write_bytes(compress(TEXT))  # type: ignore[operator]
    assert list(stream_lines(str(path))) == LINES
    assert list(stream_lines(f"file://{path}")) == LINES


def test_a_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(b"a line\n" * 1000)[:-12])
    with pytest.raises(InputError, match=r"lines\.gz"):
        list(stream_lines(str(path)))
