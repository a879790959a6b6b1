"""Which files a source names.

Run alone: pytest tests/orchestrator/corpus/test_input_files.py
"""

import gzip
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from orchestrator.corpus import input_files
from orchestrator.corpus.decompression import read_chunks
from orchestrator.corpus.input_files import find_files
from orchestrator.errors import CorpusError
from orchestrator.specs import TextSource
from tests.hub_server import serving_hub


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


def test_files_on_the_hub_are_found_at_a_commit_and_read(tmp_path: Path) -> None:
    with serving_hub(tmp_path) as hub:
        commit = hub.commit(
            "datasets/org/set", {"a/1.txt": b"one", "a/2.txt": b"two", "a/README.md": b"", "b/3.txt": b""}
        )
        source = TextSource(files=("hf://datasets/org/set/a", "hf://datasets/org/set/*/2.txt"))
        found = find_files(source)
        assert [file.path for file in found] == [f"hf://datasets/org/set@{commit}/a/{n}.txt" for n in (1, 2)]
        hub.commit("datasets/org/set", {"a/1.txt": b"others", "b/2.txt": b""})
        assert [b"".join(read_chunks(file)) for file in found] == [b"one", b"two"]
        assert find_files(source)[0].version != commit
        with pytest.raises(CorpusError, match="none"):
            names("hf://datasets/org/set/none.txt")


def test_a_uri_is_listed_and_read() -> None:
    with fsspec.open("memory://corpus/b.txt.gz", "wb") as stream:
        stream.write(gzip.compress(b"two"))
    with fsspec.open("memory://corpus/a.txt", "wb") as stream:
        stream.write(b"one")
    for pattern in ("memory://corpus", "memory://corpus/*"):
        files = find_files(TextSource(files=(pattern,)))
        assert [b"".join(read_chunks(file)) for file in files] == [b"one", b"two"]


@pytest.mark.parametrize("pattern", ["missing.txt", "*.txt", "empty", "memory://nowhere/*.txt", "ssh://host/a.txt"])
def test_a_pattern_without_files_is_named(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "empty").mkdir()
    place = pattern if "://" in pattern else str(tmp_path / pattern)
    with pytest.raises(CorpusError, match=r"corpus\.files") as caught:
        names(place)
    assert place in str(caught.value)


def test_a_file_uri_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "my data").mkdir()
    (tmp_path / "my data" / "50%.txt").touch()
    (file,) = find_files(TextSource(files=(f"file://{tmp_path}/my%20data/50%25.txt",)))
    assert file.path == str(tmp_path / "my data" / "50%.txt")


class Listed(MemoryFileSystem):
    """A store whose listing has the given facts about a version, and no others."""

    facts: ClassVar[dict[str, object]] = {}

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        plain = {key: value for key, value in super().info(path, **options).items() if key in ("name", "size", "type")}
        return plain | self.facts


NEWER = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"ETag": '"a"', "LastModified": NEWER}, {"ETag": '"b"', "LastModified": NEWER}),
        ({"generation": "1"}, {"generation": "2"}),
        ({"last_modified": NEWER}, {"last_modified": NEWER + timedelta(seconds=1)}),
    ],
    ids=["s3", "gcs", "azure"],
)
def test_a_changed_object_of_the_same_size_has_another_version(
    before: dict[str, object], after: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "filesystem_of", lambda uri: (Listed(), uri.partition("://")[2]))
    with fsspec.open("memory://versions/a.txt", "wb") as stream:
        stream.write(b"one")
    versions = []
    for facts in (before, after, before):
        monkeypatch.setattr(Listed, "facts", facts)
        (file,) = find_files(TextSource(files=("az://versions/a.txt",)))
        versions.append(file.version)
    assert versions[0] == versions[2] != versions[1]


def test_a_store_without_versions_is_said_and_its_files_are_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(input_files, "filesystem_of", lambda uri: (Listed(), uri.partition("://")[2]))
    versions = []
    for text in (b"one", b"two"):
        with fsspec.open("memory://versions/a.txt", "wb") as stream:
            stream.write(text)
        (file,) = find_files(TextSource(files=("az://versions/a.txt",)))
        versions.append(file.version)
    assert versions[0] != versions[1]
    assert "lists no version" in caplog.text


def test_an_unknown_ending_asks_for_the_format(tmp_path: Path) -> None:
    (tmp_path / "wiki_00").touch()
    with pytest.raises(CorpusError, match=r"corpus\.format"):
        names(tmp_path / "wiki_00")
    assert names(tmp_path / "wiki_00", format="text") == ["wiki_00"]


def test_a_broken_link_and_a_pipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(CorpusError, match=r"gone\.txt"):
        names(tmp_path / "gone.txt")
    with pytest.raises(CorpusError, match=r"pipe\.txt"):
        names(tmp_path / "pipe.txt")
