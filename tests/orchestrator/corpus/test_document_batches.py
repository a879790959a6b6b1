"""Bundles and batches: nothing lost, nothing twice, cut by the files and the shard size alone.

Run alone: pytest tests/orchestrator/corpus/test_document_batches.py
"""

import json
from pathlib import Path

import pytest

from orchestrator.corpus import document_batches
from orchestrator.corpus.document_batches import plan_bundles, read_batches
from orchestrator.corpus.input_files import InputFile, find_files
from orchestrator.specs import TextSource


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
    assert [d.id for batch in batches for d in batch.documents] == [f"{n}.{i}" for n in range(3) for i in range(20)]
    assert all(sum(len(d.text) for d in batch.documents) >= 1024 for batch in batches[:-1])
    assert [file.num_documents for batch in batches for file in batch.files] == [20, 20, 20]


@pytest.mark.parametrize("limit", [1, 20, 21, 59, 60, 1000])
def test_max_documents_counts_across_files(tmp_path: Path, limit: int) -> None:
    source = corpus(tmp_path).model_copy(update={"max_documents": limit})
    (bundle,) = plan_bundles(find_files(source), source)
    batches = list(read_batches(bundle, source, 1024))
    assert sum(len(batch.documents) for batch in batches) == min(limit, 60)
    assert sum(file.num_documents for batch in batches for file in batch.files) == min(limit, 60)


@pytest.mark.heavy
@pytest.mark.core
def test_100_000_tiny_files_are_a_few_bundles() -> None:
    files = [InputFile(f"{i}.txt", "text", "", 1000, "") for i in range(100_000)]
    assert len(plan_bundles(files, TextSource(files=("x",)))) == 2
