"""Files of labeled data: compression, lines, bytes that are no text.

Alone: pytest tests/orchestrator/tasks/test_text_files.py
"""

import gzip
import lzma
from pathlib import Path

import pytest
import zstandard

from orchestrator.errors import TaskDataError
from orchestrator.tasks.text_files import BadRecords, find_file, plain_name, read_decompressed, read_lines

COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}


@pytest.mark.parametrize("ending", COMPRESS)
def test_a_file_is_found_and_read_whatever_its_compression(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"dev.tsv{ending}").write_bytes(COMPRESS[ending]("ä\tb\n".encode()))
    path = find_file(str(tmp_path), ("valid.tsv", "dev.tsv"))
    assert path == str(tmp_path / f"dev.tsv{ending}")
    assert read_decompressed(path).decode() == "ä\tb\n"
    assert plain_name(path).endswith("dev.tsv")


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    assert find_file(str(tmp_path), ("dev.tsv",)) is None


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"no " + data])
def test_a_damaged_file_is_named(tmp_path: Path, ending: str, damage) -> None:
    path = tmp_path / f"dev.tsv{ending}"
    path.write_bytes(damage(COMPRESS[ending](bytes(range(256)) * 50)))
    with pytest.raises(TaskDataError, match=r"dev\.tsv\.\w+ cannot be decompressed.*fetch the file again"):
        read_decompressed(str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match=r"gone\.tsv cannot be read"):
        read_decompressed(str(tmp_path / "gone.tsv"))


def test_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\ntwo\u2028still\x0btwo\x85\n\nfour".encode())
    lines = list(read_lines(str(path), BadRecords(str(path), "error")))
    assert lines == [(1, "one"), (2, "two\u2028still\x0btwo\x85"), (3, ""), (4, "four")]


def test_lines_end_at_carriage_returns_in_a_file_without_line_feeds(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\rthree\r")
    assert list(read_lines(str(path), BadRecords(str(path), "error"))) == [(1, "one"), (2, ""), (3, "three")]


def test_bytes_that_are_no_text_end_the_reading_or_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\nt\xffwo\nthree\n")
    with pytest.raises(TaskDataError, match=r"a\.txt, line 2: byte 2 is not UTF-8 \(0xff\).*on_bad_record: skip"):
        list(read_lines(str(path), BadRecords(str(path), "error")))
    bad = BadRecords(str(path), "skip")
    assert list(read_lines(str(path), bad)) == [(1, "one"), (3, "three")]
    assert bad.count == 1


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(TaskDataError, match=r"a\.txt is empty"):
        list(read_lines(str(tmp_path / "a.txt"), BadRecords("a.txt", "skip")))
