"""The stream of examples: order, resuming, workers. Alone: pytest tests/orchestrator/corpus/test_stream.py"""

import hashlib
import pickle
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest

from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import TokenizedDocuments
from bert_core.masking import MaskingConfig
from bert_core.objectives import SegmentConfig
from orchestrator.corpus import stream as streams
from orchestrator.corpus.stream import ExampleStream, StreamConfig
from tests.bert_core.small_documents import BERT, documents
from tests.orchestrator.corpus.shards import digests


@dataclass(frozen=True)
class MemoryStore:
    """Shards that are made when asked for; every token tells its shard and place."""

    num_shards: int = 5
    fingerprint: str = "store"

    @property
    def entries(self) -> list[int]:
        return [0, 1, 1, 0, 1][: self.num_shards]

    def read_documents(self, shard: int) -> TokenizedDocuments:
        made = documents(12, seed=shard)
        return replace(made, tokens=made.tokens + 100_000 * shard)

    def document_lengths(self, shard: int) -> np.ndarray:
        return np.diff(self.read_documents(shard).document_ends)


CONFIG = StreamConfig(
    seed=3,
    phases=((64, 20, 24), (32, 10, 10)),
    window_shards=2,
    masking=(MaskingConfig(vocab_size=30_000, mask_token_id=4),) * 2,
    layout=BERT,
)


def open_stream(store: MemoryStore | None = None, **changes: object) -> ExampleStream:
    store = store or MemoryStore()
    return ExampleStream.open(store, replace(CONFIG, **changes))


def test_phases_have_their_own_sequence_length() -> None:
    longest = [int(np.diff(batch.cu_seqlens).max()) for _, batch in open_stream().batches(range(30))]
    assert max(longest[:20]) > 32
    assert max(longest[20:]) <= 32


def test_phases_have_batches_of_their_own_size_and_start_at_their_first_example() -> None:
    stream = open_stream()
    batches = [batch for _, batch in stream.batches(range(30))]
    assert [batch.num_sequences for batch in batches] == [24] * 20 + [10] * 10
    last_phase = stream.examples(1, np.arange(100)).split(10)
    assert digests(list(enumerate(last_phase))) == digests(list(enumerate(batches[20:])))
    per_epoch = [stream.examples_per_epoch(phase) for phase in (0, 1)]
    assert stream.epoch_after(30) == pytest.approx(480 / per_epoch[0] + 100 / per_epoch[1])


OBJECTIVES = pytest.mark.parametrize(
    "segments", [SegmentConfig(), SegmentConfig("sentence_order"), SegmentConfig("none"), SegmentConfig("none", True)]
)


WEIGHTS = ((3.0, 1.0), (0.0, 2.0))
MIXTURES = pytest.mark.parametrize("weights", [(), WEIGHTS], ids=["alike", "weighted"])


@OBJECTIVES
@MIXTURES
@pytest.mark.parametrize("start", [1, 7, 19, 20, 29])
@pytest.mark.heavy
@pytest.mark.core
def test_starting_later_gives_the_same_batches(segments: SegmentConfig, weights: tuple, start: int) -> None:
    stream = open_stream(segments=segments, weights=weights)
    straight = digests(list(stream.batches(range(30))))
    assert digests(list(stream.batches(range(start, 30)))) == straight[start:]


@OBJECTIVES
@MIXTURES
@pytest.mark.parametrize("num_workers", [2, 3, 8])
@pytest.mark.heavy
@pytest.mark.core
def test_workers_share_the_same_global_batches(segments: SegmentConfig, weights: tuple, num_workers: int) -> None:
    stream = open_stream(segments=segments, weights=weights)
    whole = list(stream.batches(range(30)))
    parts = [list(stream.batches(range(30), rank, num_workers)) for rank in range(num_workers)]
    joined = [(step, PackedBatch.concatenate([part[step][1] for part in parts])) for step, _ in whole]
    assert digests(joined) == digests(whole)


def test_a_process_that_starts_anew_makes_the_same_batches() -> None:
    stream = open_stream()
    before = digests(list(stream.batches(range(5))))
    for cache in (streams.window_loader, streams.window_order, streams.epoch_layout):
        cache.cache_clear()
    assert digests(list(pickle.loads(pickle.dumps(stream)).batches(range(5)))) == before


@pytest.mark.parametrize("change", [{"seed": 4}, {"window_shards": 3}, {"store": MemoryStore(fingerprint="another")}])
def test_another_seed_window_or_corpus_gives_other_batches(change: dict) -> None:
    assert digests(list(open_stream(**change).batches(range(3)))) != digests(list(open_stream().batches(range(3))))


@pytest.mark.parametrize(
    ("segments", "weights", "expected"),
    [
        (SegmentConfig(), (), "d924ad8f1ab5fed7"),
        (SegmentConfig("sentence_order"), (), "8cecc512fd93a396"),
        (SegmentConfig("none"), (), "d80a02ee7c1a130d"),
        (SegmentConfig("none", True), (), "8ec9efa08f514bc7"),
        (SegmentConfig(), WEIGHTS, "0f7abc2cf04a33cb"),
    ],
)
def test_batches_are_those_of_every_version(segments: SegmentConfig, weights: tuple, expected: str) -> None:
    """A run that a newer version resumes goes on with the examples that it would have had."""
    stream = open_stream(segments=segments, weights=weights, phases=((64, 20, 24), (32, 10, 24)))
    batches = digests(list(stream.batches(range(30))))
    assert hashlib.sha256("".join(batches).encode()).hexdigest()[:16] == expected


def shards_of(batch: PackedBatch) -> list[int]:
    """Shard that each sequence is of, by its first label."""
    firsts = np.searchsorted(batch.masked_positions, batch.cu_seqlens[:-1])
    return (batch.masked_labels[firsts] // 100_000).tolist()


def entries_of(batch: PackedBatch, stream: ExampleStream) -> list[int]:
    return [stream.store.entries[shard] for shard in shards_of(batch)]


def test_entries_have_the_shares_that_their_weights_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MIXTURE_BLOCK", 400)
    stream = open_stream(segments=SegmentConfig("none"), weights=WEIGHTS)
    sizes = np.bincount(stream.shard_entries, stream.shard_examples[0])
    expected = 3 * sizes[0] / (3 * sizes[0] + sizes[1])
    for block in (0, 3):
        entries = entries_of(stream.examples(0, np.arange(400) + 400 * block), stream)
        assert entries.count(0) == round(400 * expected)
        assert 40 < entries[:100].count(0) < 100, "they are mixed within a block"
    assert set(entries_of(stream.examples(1, np.arange(100)), stream)) == {1}
    assert stream.examples_per_epoch(1) == np.bincount(stream.shard_entries, stream.shard_examples[1])[1], (
        "what is never read is in no epoch"
    )


def test_every_entry_has_epochs_of_its_own() -> None:
    stream = open_stream(segments=SegmentConfig("none"), weights=WEIGHTS)
    of_first = [shard for shard in shards_of(stream.examples(0, np.arange(400))) if stream.store.entries[shard] == 0]
    counts = {shard: int(stream.shard_examples[0][shard]) for shard in (0, 3)}
    per_epoch = sum(counts.values())
    for epoch in (0, 1):
        assert Counter(of_first[epoch * per_epoch :][:per_epoch]) == counts


@pytest.mark.parametrize("objective", ["none", "sentence_order"])
def test_an_epoch_uses_every_example_once(objective: str) -> None:
    stream = open_stream(segments=SegmentConfig(objective, short_seq_prob=0.0))
    per_epoch = stream.examples_per_epoch()
    seen: list[int] = []
    config = replace(stream.config, phases=((64, per_epoch, 1),))
    for _, batch in replace(stream, config=config, shard_examples=stream.shard_examples[:1]).batches(range(per_epoch)):
        seen.append(int(batch.masked_labels[0]) // 100_000)
    shards = Counter(seen)
    assert dict(shards) == dict(enumerate(stream.shard_examples[0].tolist()))


@pytest.mark.parametrize("segments", [SegmentConfig(), SegmentConfig("none", True)])
def test_what_is_drawn_beside_a_document_comes_from_the_same_window(segments: SegmentConfig) -> None:
    stream = open_stream(window_shards=1, segments=segments)
    for _, batch in stream.batches(range(10)):
        for first, last in zip(batch.cu_seqlens[:-1], batch.cu_seqlens[1:], strict=True):
            tokens = batch.input_ids[first:last]
            plain = np.setdiff1d(np.arange(first, last), batch.masked_positions) - first
            assert len(set((tokens[plain][tokens[plain] > 9] // 100_000).tolist())) <= 1


def test_an_epoch_across_documents_sees_all_shards_about_once() -> None:
    stream = open_stream(segments=SegmentConfig("none", True, 0.0), phases=((64, 1, 24),))
    per_epoch = stream.examples_per_epoch()
    whole = replace(stream.config, phases=((64, 1, per_epoch),))
    seen = np.zeros(stream.store.num_shards)
    ((_, batch),) = replace(stream, config=whole).batches(range(1))
    tokens = batch.input_ids.copy()
    tokens[batch.masked_positions] = batch.masked_labels
    seen += np.bincount(tokens[tokens > 9] // 100_000)
    lengths = [stream.store.document_lengths(shard).sum() for shard in range(stream.store.num_shards)]
    assert np.abs(seen / lengths - 1.0).max() < 0.1
    assert np.diff(batch.cu_seqlens).mean() > 62.5


def test_next_epoch_is_another_order_with_other_masks() -> None:
    stream = open_stream(phases=((64, 20, 1),))
    per_epoch = stream.examples_per_epoch()
    config = replace(stream.config, phases=((64, 2 * per_epoch, 1),))
    long = replace(stream, config=config, shard_examples=stream.shard_examples[:1])
    all_digests = digests(list(long.batches(range(2 * per_epoch))))
    assert len(set(all_digests)) == len(all_digests)
    assert long.epoch_after(per_epoch) == 1.0


def test_a_batch_larger_than_the_corpus_runs_over_several_epochs() -> None:
    stream = open_stream(phases=((64, 2, 4096),))
    (_, first), (_, second) = stream.batches(range(2))
    assert first.num_sequences == second.num_sequences == 4096
