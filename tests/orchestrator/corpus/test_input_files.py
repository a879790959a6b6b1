"""Which files a source names, and how their bytes are unpacked.

Run alone: pytest tests/orchestrator/corpus/test_input_files.py
"""

import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from orchestrator.corpus.input_files import CHUNK_BYTES, DamagedFileError, InputFile, find_files, read_chunks
from orchestrator.errors import CorpusError
from orchestrator.specs import TextSource


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd}


def names(*patterns: str | Path, **source: str) -> list[str]:
    files = find_files(TextSource(files=tuple(str(pattern) for pattern in patterns), **source))  # type: ignore[arg-type]
    return [file.name for file in files]


def content(path: Path) -> bytes:
    (file,) = find_files(TextSource(files=(str(path),)))
    return b"".join(read_chunks(file))


def test_a_folder_gives_known_endings_sorted_and_nothing_hidden(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("b.txt", "a.jsonl.xz", "deep/c.parquet", "notes.pdf", ".hidden.txt", "_SUCCESS"):
        (tmp_path / name).touch()
    assert names(tmp_path) == ["a.jsonl.xz", "b.txt", "c.parquet"]
    assert names(tmp_path, format="text") == ["a.jsonl.xz", "b.txt", "c.parquet", "notes.pdf"]


def test_patterns_keep_their_order_and_no_file_comes_twice(tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt", "3.txt"):
        (tmp_path / name).touch()
    (tmp_path / "again.txt").symlink_to(tmp_path / "1.txt")
    assert names(tmp_path / "3.txt", tmp_path / "*.txt") == ["3.txt", "1.txt", "2.txt"]


def test_a_name_with_brackets_is_a_name_first(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").touch()
    assert names(tmp_path / "a[1].txt") == ["a[1].txt"]


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").touch()
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert names(tmp_path) == ["x.txt"]
    assert names(tmp_path / "**" / "*.txt") == ["x.txt"]


def test_a_uri_is_listed_and_read() -> None:
    with fsspec.open("memory://corpus/b.txt.gz", "wb") as stream:
        stream.write(gzip.compress(b"two"))
    with fsspec.open("memory://corpus/a.txt", "wb") as stream:
        stream.write(b"one")
    for pattern in ("memory://corpus", "memory://corpus/*"):
        files = find_files(TextSource(files=(pattern,)))
        assert [b"".join(read_chunks(file)) for file in files] == [b"one", b"two"]


@pytest.mark.parametrize("pattern", ["missing.txt", "*.txt", "empty", "memory://nowhere/*.txt", "odd://x/y.txt"])
def test_a_pattern_without_files_is_named(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "empty").mkdir()
    place = pattern if "://" in pattern else str(tmp_path / pattern)
    with pytest.raises(CorpusError, match=r"corpus\.files") as caught:
        names(place)
    assert place in str(caught.value)


def test_an_unknown_protocol_has_a_remedy() -> None:
    with pytest.raises(CorpusError, match=r"odd.*; give a local path, or a URI such as s3://"):
        find_files(TextSource(files=("odd://x/y.txt",)))


def test_an_unknown_ending_asks_for_the_format(tmp_path: Path) -> None:
    (tmp_path / "wiki_00").touch()
    with pytest.raises(CorpusError, match=r"wiki_00 does not say .*corpus\.format"):
        names(tmp_path / "wiki_00")
    assert names(tmp_path / "wiki_00", format="text") == ["wiki_00"]


def test_a_broken_link_and_a_pipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(CorpusError, match=r"gone\.txt cannot be read"):
        names(tmp_path / "gone.txt")
    with pytest.raises(CorpusError, match=r"pipe\.txt is neither"):
        names(tmp_path / "pipe.txt")


def test_the_version_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    (before,) = find_files(TextSource(files=(str(path),)))
    os.utime(path, ns=(1, 1))
    (after,) = find_files(TextSource(files=(str(path),)))
    assert before.version != after.version


@pytest.mark.parametrize("ending", PACKERS)
def test_concatenated_members_are_read_through(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(PACKERS[ending](b"one\n" * 400_000) + PACKERS[ending](b"two"))
    assert content(path) == b"one\n" * 400_000 + b"two"


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("lost", [1, 10, 300])
def test_a_file_cut_short_is_named_with_the_place(tmp_path: Path, ending: str, lost: int) -> None:
    path = tmp_path / f"a.txt{ending}"
    packed = PACKERS[ending](os.urandom(CHUNK_BYTES + 100_000))
    path.write_bytes(packed[:-lost])
    with pytest.raises(DamagedFileError, match=r"a\.txt\S* is damaged after \d+ bytes .*fetch it again"):
        content(path)


@pytest.mark.parametrize("ending", PACKERS)
def test_what_was_decompressed_before_a_break_is_given(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(PACKERS[ending](os.urandom(300_000))[:-10])
    (file,) = find_files(TextSource(files=(str(path),)))
    pieces: list[bytes] = []
    with pytest.raises(DamagedFileError) as caught:
        pieces.extend(read_chunks(file))
    num_bytes = sum(map(len, pieces))
    assert f"after {num_bytes} bytes" in str(caught.value)
    if ending == ".gz":
        assert num_bytes > 299_000


@pytest.mark.parametrize("ending", PACKERS)
def test_an_ending_that_lies_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(b"plain text")
    with pytest.raises(CorpusError, match=r"a\.txt\.\w+ is not compressed; rename it to a\.txt$"):
        content(path)
    path = tmp_path / "b.txt"
    path.write_bytes(PACKERS[ending](b"text"))
    with pytest.raises(CorpusError, match=rf"holds {ending[1:]} data; rename it to b\.txt\{ending}$"):
        content(path)


@pytest.mark.parametrize("ending", ["", *PACKERS])
def test_an_empty_file_is_empty(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"a.txt{ending}").touch()
    assert content(tmp_path / f"a.txt{ending}") == b""


def test_a_file_that_is_gone_when_it_is_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"gone\.txt cannot be opened"):
        list(read_chunks(InputFile(str(tmp_path / "gone.txt"), "text", "", 10, "")))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("text")
    path.chmod(0)
    with pytest.raises(CorpusError, match=r"secret\.txt cannot be opened: .*Permission"):
        content(path)
