"""Documents from clean and from dirty files, under each policy; their bytes unpacked, and cut into lines.

Run alone: pytest tests/orchestrator/corpus/test_document_readers.py
"""

import gzip
import json
import lzma
import os
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.base.errors import CorpusError
from orchestrator.corpus import document_readers
from orchestrator.corpus.document_readers import (
    BYTE_ORDER_MARK,
    CHUNK_BYTES,
    DamagedFileError,
    Document,
    DocumentReader,
    Line,
    read_chunks,
    split_lines,
)
from orchestrator.corpus.input_files import InputFile, find_files
from orchestrator.specs import TextSource

Policy = Literal["error", "skip", "replace"]


def read(path: Path, policy: Policy = "error", **fields: Any) -> tuple[list[str], int]:
    """The texts and the number of bad records."""
    source = TextSource(files=(str(path),), on_bad_record=policy, **fields)
    (file,) = find_files(source)
    reader = DocumentReader(file, source)
    texts = [document.text for document in reader.read()]
    count = reader.count()
    assert (count.path, count.num_bytes, count.num_documents) == (str(path), path.stat().st_size, len(texts))
    assert reader.num_bytes_read == file.num_bytes
    return texts, count.num_bad_records


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def json_lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_blank_lines_part_documents_of_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\ufeffOne.\r\nTwo\u2028too.\r\n\r\n \t\n\nThree.")
    assert read(path) == (["One.\nTwo\u2028too.", "Three."], 0)


def test_documents_are_named_by_id_or_by_file_and_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", json_lines({"id": "x", "text": "A"}, {"text": "B"}, {"id": 7, "text": "C"}))
    source = TextSource(files=(str(path),))
    (file,) = find_files(source)
    assert list(DocumentReader(file, source).read()) == [
        Document("x", "A", "en"),
        Document("a.jsonl#2", "B", "en"),
        Document("7", "C", "en"),
    ]


def test_names_are_unicode_whatever_ids_and_files_hold(tmp_path: Path) -> None:
    path = write(tmp_path / "a\udcff.jsonl", json_lines({"id": "x\ud83d", "text": "A"}, {"text": "B"}))
    source = TextSource(files=(str(path),))
    (file,) = find_files(source)
    assert [document.id for document in DocumentReader(file, source).read()] == ["x?", "a?.jsonl#2"]


def test_json_lines_without_text_are_no_documents(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", json_lines({"text": ""}, {"text": " \n"}, {"text": "A"}) + "\n\n")
    assert read(path) == (["A"], 0)


def test_parquet_is_read_as_it_is_and_refused_in_another_compression(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["A", "B\nC"] * 100, "id": list(range(200))}), path, row_group_size=70)
    assert read(path) == (["A", "B\nC"] * 100, 0)
    with pytest.raises(CorpusError, match=r"b\.parquet\.gz"):
        read(write(tmp_path / "b.parquet.gz", gzip.compress(path.read_bytes())))


def test_parquet_without_the_column_names_those_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"body": ["A"], "size": [1]}), path)
    assert read(path, text_field="body") == (["A"], 0)
    with pytest.raises(CorpusError, match=r"corpus\.text_field"):
        read(path)
    with pytest.raises(CorpusError, match="holds int"):
        read(path, text_field="size")
    pq.write_table(pa.table([["A"], ["B"]], names=["text", "text"]), path)
    with pytest.raises(CorpusError, match="several columns 'text'"):
        read(path)


BAD_TEXT = b"Good.\n\nBad \xff byte.\nNext.\n\nLast."
BAD_JSON = b'{"text": "A"}\n{"text": "B\xff"}\n{"text": "C"}\n'


@pytest.mark.parametrize(
    ("name", "data", "place", "skipped", "replaced"),
    [
        (
            "a.txt",
            BAD_TEXT,
            r"line 3 \(byte 11\) is not UTF-8 \(byte 0xff\)",
            ["Good.", "Next.", "Last."],
            "Bad � byte.",
        ),
        ("a.jsonl", BAD_JSON, r"line 2 \(byte 25\) is not UTF-8", ["A", "C"], "B�"),
        ("b.txt", b"A\n\nB\0\nC", r"line 3 \(byte 4\) has a NUL byte", ["A", "C"], "B�"),
        ("b.jsonl", b'{"text": "A"}\n{"text"\n', r"line 2 \(byte 14\) is not JSON", ["A"], None),
        ("c.jsonl", b'{"text": "A"}\n[1]\n', r"line 2 \(byte 14\) is list, not a JSON object", ["A"], None),
        ("d.jsonl", b'{"text": "A"}\n{"body": 1}\n', r"lacks the text field 'text' \(its fields: body\)", ["A"], None),
        ("e.jsonl", b'{"text": "A"}\n{"text": null}\n', r"has NoneType in the text field", ["A"], None),
        ("f.jsonl", b'{"text": "A"}\n{"text": "\\ud800!"}\n', r"half a surrogate pair", ["A"], "�!"),
        ("h.jsonl", b'{"text": "A"}\n{"text": "B\\u0000"}\n', r"has NUL", ["A"], "B�"),
        ("g.jsonl", b'{"text": "A"}\n' + b"[" * 100_000, r"line 2 \(byte 14\) is not JSON", ["A"], None),
    ],
)
def test_a_bad_record_follows_the_policy(
    tmp_path: Path, name: str, data: bytes, place: str, skipped: list[str], replaced: str | None
) -> None:
    path = write(tmp_path / name, data)
    with pytest.raises(CorpusError, match=place) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "set corpus.on_bad_record (--on-bad-record) to skip or replace" in str(caught.value)
    texts, bad = read(path, "skip")
    assert ("\n\n".join(texts).split(), bad) == (" ".join(skipped).split(), 1)
    texts, bad = read(path, "replace")
    assert bad == 1
    assert replaced is None or replaced in "\n".join(texts)


def test_bad_rows_of_parquet_follow_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    broken = pa.array([b"A", b"B\xff", None, b"C"]).view(pa.string())
    pq.write_table(pa.table({"text": broken}), path)
    with pytest.raises(CorpusError, match=r"a\.parquet"):
        read(path)
    assert read(path, "skip") == (["A", "C"], 2)
    assert read(path, "replace") == (["A", "B�", "C"], 2)


def test_a_line_over_the_limit_follows_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_readers, "MAX_RECORD_BYTES", 101)
    path = write(tmp_path / "a.txt", "A\n\n" + "é" * 1000 + "\n\nB")
    with pytest.raises(CorpusError, match="bytes long"):
        read(path)
    assert read(path, "skip") == (["A", "B"], 1)
    assert read(path, "replace") == (["A", "é" * 50, "B"], 1)


def test_a_text_without_blank_lines_is_cut_into_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_readers, "MAX_RECORD_BYTES", 50)
    lines = [f"Line number {i}." for i in range(20)]
    texts, bad = read(write(tmp_path / "a.txt", "\n".join(lines)))
    assert len(texts) > 1
    assert bad == 0
    assert "\n".join(texts).split("\n") == lines


@pytest.mark.parametrize("packer", [gzip.compress, lzma.compress])
@pytest.mark.heavy
def test_a_file_cut_short_gives_its_whole_records_or_an_error(tmp_path: Path, packer: Any) -> None:
    records = [{"text": f"{i} " * 500} for i in range(5000)]
    ending = "gz" if packer is gzip.compress else "xz"
    path = write(tmp_path / f"a.jsonl.{ending}", packer(json_lines(*records).encode())[:-100])
    with pytest.raises(CorpusError, match="is damaged after"):
        read(path)
    texts, bad = read(path, "skip")
    assert bad == 1
    assert 0 < len(texts) < 5000
    assert texts == [record["text"] for record in records[: len(texts)]]


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["A"] * 1000}), path)
    write(path, path.read_bytes()[:-20])
    with pytest.raises(CorpusError, match=r"a\.parquet"):
        read(path)
    assert read(path, "skip") == ([], 1)


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd}


def content(path: Path) -> bytes:
    (file,) = find_files(TextSource(files=(str(path),)))
    return b"".join(read_chunks(file))


@pytest.mark.parametrize("ending", PACKERS)
def test_concatenated_members_are_read_through(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(PACKERS[ending](b"one\n" * 400_000) + PACKERS[ending](b"two"))
    assert content(path) == b"one\n" * 400_000 + b"two"


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("lost", [1, 10, 300])
@pytest.mark.heavy
def test_a_file_cut_short_is_named_with_the_place(tmp_path: Path, ending: str, lost: int) -> None:
    path = tmp_path / f"a.txt{ending}"
    packed = PACKERS[ending](os.urandom(CHUNK_BYTES + 100_000))
    path.write_bytes(packed[:-lost])
    with pytest.raises(DamagedFileError, match=r"a\.txt"):
        content(path)


@pytest.mark.parametrize("ending", PACKERS)
def test_an_ending_that_lies_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(b"plain text")
    with pytest.raises(CorpusError, match=r"a\.txt"):
        content(path)
    path = tmp_path / "b.txt"
    path.write_bytes(PACKERS[ending](b"text"))
    with pytest.raises(CorpusError, match=rf"holds {ending[1:]} data; rename it to .*b\.txt\{ending}$"):
        content(path)


@pytest.mark.parametrize("ending", ["", *PACKERS])
def test_an_empty_file_is_empty(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"a.txt{ending}").touch()
    assert content(tmp_path / f"a.txt{ending}") == b""


def test_a_file_that_is_gone_when_it_is_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"gone\.txt"):
        list(read_chunks(InputFile(str(tmp_path / "gone.txt"), "text", "", 10, "")))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("text")
    path.chmod(0)
    with pytest.raises(CorpusError, match=r"secret\.txt"):
        content(path)


DIRTY = st.lists(
    st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"\x00", b"\xff", BYTE_ORDER_MARK, "\u2028é".encode(), b"word "])
).map(b"".join)


@given(DIRTY, st.lists(st.integers(0, 40)))
def test_lines_do_not_depend_on_where_chunks_end(data: bytes, cuts: list[int]) -> None:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    chunks = [data[start:end] for start, end in pairwise(places)]
    assert list(split_lines(chunks, 20)) == list(split_lines([data], 20))


@given(DIRTY)
def test_every_line_is_where_its_offset_says(data: bytes) -> None:
    for line in split_lines([data], 1000):
        assert data[line.offset : line.offset + line.num_bytes] == line.data
        assert b"\n" not in line.data


def test_only_a_line_feed_ends_a_line() -> None:
    text = "one\u2028two\u0085three\x0bfour\x0cfive\rsix\nseven"
    assert [line.data.decode() for line in split_lines([text.encode()], 1000)] == text.split("\n")


def test_byte_order_mark_and_carriage_returns_go() -> None:
    assert list(split_lines([BYTE_ORDER_MARK + b"a\r\n\r\nb"], 1000)) == [
        Line(1, 3, b"a", 1),
        Line(2, 6, b"", 0),
        Line(3, 8, b"b", 1),
    ]


def test_a_line_of_100_mb_is_held_to_the_limit() -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * (1 << 20)
        yield b"\nshort"

    tracemalloc.start()
    long, short = split_lines(chunks(), 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(long.data), long.num_bytes) == (1 << 20, 100 << 20)
    assert (short.number, short.offset, short.data) == (2, (100 << 20) + 1, b"short")
    assert peak < 8 << 20
