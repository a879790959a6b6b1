"""Languages sampled with an exponent: shares, what stays untouched, and text read in turns.

Run alone: pytest tests/orchestrator/corpus/test_sampling.py
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.corpus.document_batches import plan_bundles, read_batches, read_corpus
from orchestrator.corpus.input_files import find_files
from orchestrator.corpus.sampling import mean_copies, num_copies
from orchestrator.specs import TextSource

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
    in_store = Counter(document.text for batch in batches for document in batch.documents)
    assert in_store == Counter(document.text for document in read_corpus(source))
    assert max(sum(len(document.text) for document in batch.documents) for batch in batches) < 2 * 4096
    assert sum(file.num_documents for batch in batches for file in batch.files) == sum(NUM_DOCUMENTS.values())
    assert sum(batch.num_bytes_read for batch in batches) == sum(file.num_bytes for file in files)


def test_an_exponent_of_one_reads_every_document_once_in_order(folder: Path) -> None:
    files = [file.path for file in find_files(source_of(folder, 1.0))]
    untouched = [document for path in files for document in read_corpus(TextSource(files=(path,)))]
    assert list(read_corpus(source_of(folder, 1.0))) == untouched
    assert {file.mean_copies for file in find_files(source_of(folder, 1.0))} == {1.0}


def test_a_limit_on_documents_and_an_exponent_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="max_documents"):
        TextSource(files=("a", "b"), max_documents=5, sampling_exponent=0.7)
