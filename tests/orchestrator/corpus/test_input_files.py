"""Which files a source names.

Run alone: pytest tests/orchestrator/corpus/test_input_files.py
"""

import gzip
import os
from pathlib import Path

import fsspec
import pytest

from orchestrator.corpus.decompression import read_chunks
from orchestrator.corpus.input_files import find_files
from orchestrator.errors import CorpusError
from orchestrator.specs import TextSource


def names(*patterns: str | Path, **source: str) -> list[str]:
    files = find_files(TextSource(files=tuple(str(pattern) for pattern in patterns), **source))  # type: ignore[arg-type]
    return [file.name for file in files]


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
