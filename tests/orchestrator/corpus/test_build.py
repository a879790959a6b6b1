"""Building a token store with Ray Data, on the session's cluster.

Run alone: pytest tests/orchestrator/corpus/test_build.py
"""

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.base.errors import ClusterError, CorpusError
from orchestrator.base.results import DatasetResult, FileCount
from orchestrator.corpus import build as build_module
from orchestrator.corpus.build import build_token_store
from orchestrator.corpus.document_batches import tokenize
from orchestrator.corpus.document_readers import Document
from orchestrator.corpus.token_store import TokenStore
from orchestrator.specs import TextSource
from tests.orchestrator.corpus.shards import document_ids

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

WORDS = [*"abcdefghijklmnop", "river", "boats", "hills", "birds", "trees"]


def make_texts(num_documents: int) -> list[str]:
    generator = np.random.default_rng(7)
    return [
        " ".join(f"{' '.join(generator.choice(WORDS, 8)).capitalize()}." for _ in range(12))
        for _ in range(num_documents)
    ]


TEXTS = make_texts(300)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece(TEXTS, vocab_size=150)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three files: lines of JSON, plain text packed, and one that is empty."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    records = [json.dumps({"id": f"j{i}", "text": text}) for i, text in enumerate(TEXTS[:200])]
    (folder / "a.jsonl").write_text("\n".join(records))
    (folder / "b.txt.gz").write_bytes(gzip.compress("\n\n".join(TEXTS[200:]).encode()))
    (folder / "c.txt").touch()
    return folder


def build(corpus: Path, storage: Path, tokenizer: Tokenizer, **options: int) -> DatasetResult:
    return build_token_store(TextSource(files=(str(corpus),)), tokenizer, 0.1, 8192, str(storage), **options)


@pytest.mark.core
def test_a_store_holds_the_corpus_and_does_not_depend_on_cpus(
    corpus: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    one = build(corpus, tmp_path / "one", tokenizer, num_cpus=1)
    four = build(corpus, tmp_path / "four", tokenizer, num_cpus=4)
    assert one.fingerprint == four.fingerprint
    assert TokenStore.open(one.path).manifest == TokenStore.open(four.path).manifest

    store = TokenStore.open(four.path)
    assert len(store.shards("train")) > 10
    assert four.counts["num_documents"] == 300
    assert four.counts["num_train_documents"] + four.counts["num_validation_documents"] == 300
    files = {name: (corpus / name).read_bytes() for name in ("a.jsonl", "b.txt.gz", "c.txt")}
    assert four.files == tuple(
        FileCount(str(corpus / name), len(data), num_documents, digest=hashlib.sha256(data).hexdigest())
        for (name, data), num_documents in zip(files.items(), (200, 100, 0), strict=True)
    )
    texts = {f"j{i}": text for i, text in enumerate(TEXTS[:200])}
    texts |= {f"b.txt.gz#{i}": text for i, text in enumerate(TEXTS[200:], 1)}
    order = []
    for shard in store.shards("train"):
        documents, ids = store.read_shard(shard), document_ids(store, shard)
        for number, name in enumerate(ids):
            expected, _ = tokenize([Document(name, texts[name], "en")], tokenizer)
            start, end = documents.document_ends[number : number + 2]
            np.testing.assert_array_equal(documents.tokens[start:end], expected)
        order += ids
    validation = {name for shard in store.shards("validation") for name in document_ids(store, shard)}
    assert order == [name for name in texts if name not in validation]


def test_an_unchanged_corpus_is_reused_and_a_changed_file_is_noticed(
    corpus: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    heard: list[tuple[int, int]] = []
    source = TextSource(files=(str(corpus),))
    first = build_token_store(source, tokenizer, 0.1, 1 << 20, str(tmp_path), progress=lambda *at: heard.append(at))
    total = sum(file.num_bytes for file in first.files)
    assert heard[-1] == (total, total)
    again = build_token_store(source, tokenizer, 0.1, 1 << 20, str(tmp_path))
    assert again.reused
    assert (again.fingerprint, again.counts, again.files) == (first.fingerprint, first.counts, first.files)

    os.utime(corpus / "c.txt", ns=(1, 1))
    touched = build_token_store(source, tokenizer, 0.1, 1 << 20, str(tmp_path))
    assert not touched.reused
    assert touched.fingerprint == first.fingerprint, "the content is the same"


@pytest.mark.core
def test_an_error_in_a_task_is_one_plain_message(corpus: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    (corpus / "d.txt").write_bytes(b"Fine.\n\nBad \xff byte.")
    with pytest.raises(CorpusError) as caught:
        build(corpus, tmp_path, tokenizer)
    place = f"{corpus / 'd.txt'}: line 3 (byte 11) is not UTF-8 (byte 0xff)"
    assert str(caught.value).startswith(f"{place}; mend the file, or set corpus.on_bad_record ")
    assert not list(tmp_path.rglob("manifest.json"))


def test_a_storage_that_cannot_be_written_is_named(corpus: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "corpora").write_text("a file where a folder must be")
    with pytest.raises(CorpusError, match="cannot be written"):
        build(corpus, tmp_path / "storage", tokenizer)


@pytest.mark.parametrize("ending", ["an exception", "a death"])
def test_a_task_that_always_fails_ends_the_build(
    corpus: Path, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        if ending == "a death":
            os._exit(1)
        raise RuntimeError("boom")

    monkeypatch.setattr(build_module, "tokenize_batch", fail)
    problem = "RuntimeError: boom" if ending == "an exception" else "worker died unexpectedly"
    with pytest.raises(ClusterError, match=f"tokenizing failed: .*{problem}.*; where memory ran out") as caught:
        # One task at a time: Ray 2.60 ends a driver that cancels a task in the moment in which it ends.
        build(corpus, tmp_path, tokenizer, num_cpus=1)
    assert "\n" not in str(caught.value)
