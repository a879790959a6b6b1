"""Files of a corpus, counted to their ends. Alone: pytest tests/orchestrator/corpus/test_inspection.py"""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from orchestrator.corpus import inspection
from orchestrator.corpus.inspection import inspect_corpus, sample_text
from orchestrator.specs import TextSource


def test_each_file_is_a_row_with_counts_lengths_and_a_sample(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One two three. Four five.\n\nSix  seven\neight nine.")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "word " * 300}))
    a, b = inspect_corpus(TextSource(files=(str(tmp_path),)))
    assert (a.format, a.num_documents, a.num_bad_records, a.first_problem) == ("text", 2, 0, "")
    assert a.sample == ("One two three. Four five.", "Six seven eight nine.")
    assert (a.num_sentences, a.num_words, a.num_characters) == (4, 9, 25 + 22)
    assert (a.median_sentence_words, a.long_sentence_words) == (2, 3)
    assert (b.num_sentences, b.num_words, b.long_sentence_words) == (1, 300, 300)
    assert len(b.sample[0]) <= 200


def test_bad_records_are_counted_and_the_first_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "A."}\nnonsense\n{"text": "\xff"}\n{"text": "B."}')
    (row,) = inspect_corpus(TextSource(files=(str(path),)))
    assert (row.num_documents, row.num_bad_records) == (2, 2)
    assert row.first_problem.startswith(f"{path}: line 2 (byte 15) is not JSON")


def test_a_sample_of_a_parquet_file_tells_how_many_documents_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet.write_table(pa.table({"text": ["one two three four"] * 70}), tmp_path / "a.parquet")
    monkeypatch.setattr(inspection, "_LARGE_SAMPLE_BYTES", 90)
    facts = sample_text(TextSource(files=(str(tmp_path / "a.parquet"),)))
    assert facts.words.total() == 5
    assert facts.num_documents == pytest.approx(70, abs=1)
