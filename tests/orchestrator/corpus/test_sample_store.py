"""Stores to look at: the corpus's own, or a small one. Alone: pytest tests/orchestrator/corpus/test_sample_store.py"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.corpus.sample_store import SampleStore, open_sample_store
from orchestrator.specs import TextSource

TEXTS = [f"The {animal} sat on the {place}. It was warm." for animal in ("cat", "dog") for place in "abcdefghijklm"]
SHARD_BYTES = 300

Open = Callable[..., AbstractContextManager[SampleStore]]


@pytest.fixture
def source(tmp_path: Path) -> TextSource:
    """Documents in two files, which fill several shards."""
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS[:20]))
    (tmp_path / "b.txt").write_text("\n\n".join(TEXTS[20:]))
    return TextSource(files=(str(tmp_path / "*.txt"),))


@pytest.fixture
def tokenizer() -> Tokenizer:
    """A tokenizer of the documents."""
    return train_wordpiece(TEXTS, vocab_size=100, min_frequency=1)


@pytest.fixture
def open_sample(tmp_path: Path, source: TextSource, tokenizer: Tokenizer) -> Open:
    """Open the documents' store on a storage of its own."""
    return partial(open_sample_store, source, tokenizer, 0.2, SHARD_BYTES, str(tmp_path / "storage"))


def test_the_whole_text_is_a_store_that_is_gone_afterwards(open_sample: Open, tmp_path: Path) -> None:
    with open_sample() as sample:
        assert sample.origin == "whole_text"
        assert sample.store.manifest.counts()["num_documents"] == len(TEXTS)
        assert len(sample.store.shards("train")) > 2
        assert sum(sample.store.read_shard(shard).num_documents for shard in sample.store.manifest.shards) == len(TEXTS)
    assert not Path(sample.store.folder).exists()
    assert not (tmp_path / "storage").exists()


@pytest.mark.parametrize("sample_bytes", [1, SHARD_BYTES, 2 * SHARD_BYTES])
def test_of_more_text_only_the_first_is_read(open_sample: Open, sample_bytes: int) -> None:
    with open_sample() as whole, open_sample(sample_bytes=sample_bytes) as part:
        assert (whole.share, part.origin) == (1.0, "first_text")
        num_documents = part.store.manifest.counts()["num_documents"]
        assert 0 < num_documents < len(TEXTS)
        assert part.share == pytest.approx(num_documents / len(TEXTS), abs=0.1)
        if sample_bytes >= SHARD_BYTES:
            shards = part.store.manifest.shards
            assert [shard.sha256 for shard in shards] == [s.sha256 for s in whole.store.manifest.shards[: len(shards)]]


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_the_whole_text_gives_the_store_of_a_run(
    open_sample: Open, source: TextSource, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    from orchestrator.corpus.build import build_token_store

    with open_sample() as sample:
        result = build_token_store(source, tokenizer, 0.2, SHARD_BYTES, str(tmp_path / "storage"))
        assert sample.store.manifest.fingerprint == result.fingerprint
    with open_sample(sample_bytes=1) as found:
        assert (found.origin, found.store.folder) == ("token_store", result.path)
