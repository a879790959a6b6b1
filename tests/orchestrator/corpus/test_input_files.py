"""Files that a source names, its languages sampled with an exponent, its documents in batches.

Run alone: pytest tests/orchestrator/corpus/test_input_files.py
"""

import gzip
import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.base.errors import CorpusError
from orchestrator.corpus import document_batches, input_files
from orchestrator.corpus.document_batches import check_text, plan_bundles, read_batches, read_corpus
from orchestrator.corpus.document_readers import read_chunks
from orchestrator.corpus.input_files import InputFile, find_files, mean_copies, num_copies
from orchestrator.specs import TextSource
from tests.hub_server import serving_hub


def names(*patterns: str | Path, **source: str) -> list[str]:
    files = find_files(TextSource(files=tuple(str(pattern) for pattern in patterns), **source))  # type: ignore[arg-type]
    return [Path(file.path).name for file in files]


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


def test_an_entry_whose_files_are_all_in_earlier_ones_has_no_weight(tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt"):
        (tmp_path / name).touch()
    folder, file = str(tmp_path), str(tmp_path / "2.txt")
    assert [found.entry for found in find_files(TextSource(files=(file, folder), weights=(3.0, 1.0)))] == [0, 1]
    with pytest.raises(CorpusError, match=r"2\.txt"):
        check_text(TextSource(files=(folder, file), weights=(1.0, 3.0)))


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
            "datasets/org/set",
            {"a/1.txt": b"one", "a/2.txt": b"two", "a/README.md": b"", "a/.old/0.txt": b"zero", "b/3.txt": b""},
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
    with fsspec.open("memory://corpus/.old/0.txt", "wb") as stream:
        stream.write(b"zero")
    for pattern in ("memory://corpus", "memory://corpus/*", "memory://corpus/**/*.*"):
        files = find_files(TextSource(files=(pattern,)))
        assert [b"".join(read_chunks(file)) for file in files] == [b"one", b"two"]
    for pattern in ("memory://corpus/.old", "memory://corpus/.o*/*.txt"):
        assert names(pattern) == ["0.txt"]


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


NUM_DOCUMENTS = {"en": 8000, "de": 2000, "sw": 250}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each language, with documents of about the same length; that of `de` has two files."""
    root = tmp_path_factory.mktemp("languages")
    for language, count in NUM_DOCUMENTS.items():
        (root / language).mkdir()
        documents = [f"{language} text of number {number:05d}, some words." for number in range(count)]
        half = count // 2 if language == "de" else count
        (root / language / "a.txt").write_text("\n\n".join(documents[:half]))
        (root / language / "b.txt").write_text("\n\n".join(documents[half:]))
    return root


def source_of(folder: Path, exponent: float) -> TextSource:
    return TextSource(files=tuple(str(folder / language) for language in NUM_DOCUMENTS), sampling_exponent=exponent)


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8), st.floats(0, 1))
def test_copies_give_the_papers_shares_and_keep_the_size(sizes: list[int], exponent: float) -> None:
    copies = np.array(mean_copies(sizes, exponent))
    p = np.array(sizes) / max(1, sum(sizes))
    weights = np.where(p > 0, p**exponent, 0)
    if sum(sizes):
        np.testing.assert_allclose(copies * p, weights / weights.sum(), rtol=1e-9)
    assert exponent < 1 or (copies == 1).all()


@pytest.mark.parametrize("mean", [0.0, 0.25, 1.0, 1.7, 12.5])
def test_documents_are_repeated_as_often_as_the_mean_says(mean: float) -> None:
    copies = [num_copies(f"document {number}", mean) for number in range(20_000)]
    assert set(copies) <= {int(mean), int(mean) + 1}
    assert np.mean(copies) == pytest.approx(mean, abs=0.02)
    assert copies == [num_copies(f"document {number}", mean) for number in range(20_000)]


@pytest.mark.parametrize("exponent", [0.7, 0.3, 0.0])
def test_a_corpus_has_the_shares_that_the_exponent_asks_for(folder: Path, exponent: float) -> None:
    weights = {language: count**exponent for language, count in NUM_DOCUMENTS.items()}
    for max_bytes in (40_000, None):  # the shares are those of what is read before the end as well
        texts = [document.text for document in read_corpus(source_of(folder, exponent), max_bytes=max_bytes)]
        counts = Counter(text[:2] for text in texts)
        for language, weight in weights.items():
            share = weight / sum(weights.values())
            assert counts[language] / counts.total() == pytest.approx(share, rel=0.05)
        assert max_bytes is None or 39_900 < sum(map(len, texts)) <= max_bytes
    assert counts.total() == pytest.approx(sum(NUM_DOCUMENTS.values()), rel=0.05)


def test_units_of_the_store_hold_what_a_reader_in_one_process_reads(folder: Path) -> None:
    source = source_of(folder, 0.3)
    files = find_files(source)
    batches = [batch for bundle in plan_bundles(files, source) for batch in read_batches(bundle, source, 4096)]
    in_store = Counter(document.text for documents, _ in batches for document in documents)
    assert in_store == Counter(document.text for document in read_corpus(source))
    assert max(sum(len(document.text) for document in documents) for documents, _ in batches) < 2 * 4096
    assert sum(file.num_documents for _, unit in batches for file in unit.files) == sum(NUM_DOCUMENTS.values())
    assert sum(unit.num_bytes_read for _, unit in batches) == sum(file.num_bytes for file in files)


def test_an_exponent_of_one_reads_every_document_once_in_order(folder: Path) -> None:
    files = [file.path for file in find_files(source_of(folder, 1.0))]
    untouched = [document for path in files for document in read_corpus(TextSource(files=(path,)))]
    assert list(read_corpus(source_of(folder, 1.0))) == untouched
    assert {file.mean_copies for file in find_files(source_of(folder, 1.0))} == {1.0}


def test_a_limit_on_documents_and_an_exponent_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="max_documents"):
        TextSource(files=("a", "b"), max_documents=5, sampling_exponent=0.7)


@pytest.mark.parametrize("weights", [(1.0, 2.0, 8.0), (0.01, 0.02, 0.08), (20.0, 0.0, 60.0)])
def test_weights_are_the_shares_in_which_text_is_read_for_a_vocabulary(
    folder: Path, weights: tuple[float, ...]
) -> None:
    source = source_of(folder, 1.0).model_copy(update={"weights": weights})
    counts = Counter(document.text[:2] for document in read_corpus(source, max_bytes=40_000))
    expected = {name: count * weight for (name, count), weight in zip(NUM_DOCUMENTS.items(), weights, strict=True)}
    for language, share in expected.items():
        assert counts[language] / counts.total() == pytest.approx(share / sum(expected.values()), rel=0.05)
    whole = Counter(document.text[:2] for document in read_corpus(source))
    assert whole["sw"] == NUM_DOCUMENTS["sw"], "those of the largest weight come once"
    bundles = plan_bundles(find_files(source), source)
    assert [{file.entry for file in bundle} for bundle in bundles] == [{0}, {1}, {2}], "a shard is of one entry"


def test_a_compressed_entry_has_its_share(tmp_path: Path) -> None:
    text = "".join(f"document {hash((i, 7)) % 10**12} of many words\n\n" for i in range(4000)).encode()
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(text))
    source = TextSource(files=(str(tmp_path / "a.txt"), str(tmp_path / "b.txt.gz")), weights=(1.0, 1.0))
    files = Counter(document.id.partition("#")[0] for document in read_corpus(source, max_bytes=60_000))
    assert files["a.txt"] / files.total() == pytest.approx(0.5, abs=0.15), "by an estimate of how far it was packed"


def corpus(folder: Path, documents_per_file: int = 20, num_files: int = 3) -> TextSource:
    for number in range(num_files):
        records = [{"id": f"{number}.{i}", "text": f"Text {number} {i}. " * 10} for i in range(documents_per_file)]
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return TextSource(files=(str(folder),))


def test_bundles_are_consecutive_files_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_batches, "BUNDLE_BYTES", 10)
    files = [InputFile(str(i), "text", "", size, "") for i, size in enumerate([4, 4, 4, 30, 0, 1, 10])]
    bundles = plan_bundles(files, TextSource(files=("x",)))
    assert [[file.num_bytes for file in bundle] for bundle in bundles] == [[4, 4], [4], [30], [0, 1], [10]]
    assert [file for bundle in bundles for file in bundle] == files


def test_batches_hold_every_document_once_in_order(tmp_path: Path) -> None:
    source = corpus(tmp_path)
    (bundle,) = plan_bundles(find_files(source), source)
    batches = list(read_batches(bundle, source, 1024))
    assert [d.id for documents, _ in batches for d in documents] == [f"{n}.{i}" for n in range(3) for i in range(20)]
    assert all(sum(len(d.text) for d in documents) >= 1024 for documents, _ in batches[:-1])
    assert [file.num_documents for _, unit in batches for file in unit.files] == [20, 20, 20]


@pytest.mark.parametrize("limit", [1, 20, 21, 59, 60, 1000])
def test_max_documents_counts_across_files(tmp_path: Path, limit: int) -> None:
    source = corpus(tmp_path).model_copy(update={"max_documents": limit})
    (bundle,) = plan_bundles(find_files(source), source)
    batches = list(read_batches(bundle, source, 1024))
    assert sum(len(documents) for documents, _ in batches) == min(limit, 60)
    assert sum(file.num_documents for _, unit in batches for file in unit.files) == min(limit, 60)


@pytest.mark.heavy
@pytest.mark.core
def test_100_000_tiny_files_are_a_few_bundles() -> None:
    files = [InputFile(f"{i}.txt", "text", "", 1000, "") for i in range(100_000)]
    assert len(plan_bundles(files, TextSource(files=("x",)))) == 2
