"""Batches filled up to few sizes. Alone: pytest tests/bert_core/examples/test_size_buckets.py

That filler changes no loss and no gradient: tests/orchestrator/pretraining/test_filled_batches.py.
"""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_core.examples.packing import PackedBatch, SizeBucket

LONGEST = 128
lengths_of = st.lists(st.integers(3, LONGEST), min_size=1, max_size=60)


def batch_of(lengths: list[int], share: float = 0.15, has_pairs: bool = True) -> PackedBatch:
    """Sequences of these lengths, the same token everywhere; the first tokens behind [CLS] are predicted."""
    ends = np.cumsum([0, *lengths]).astype(np.int32)
    places = [np.arange(begin + 1, begin + 1 + int(share * n)) for begin, n in zip(ends[:-1], lengths, strict=True)]
    positions = np.concatenate(places).astype(np.int32)
    ids = np.full(ends[-1], 7, np.int32)
    labels = np.ones(len(lengths) if has_pairs else 0, np.int8)
    return PackedBatch(ids, np.ones(len(ids), np.int8), ends, positions, ids[positions], labels, np.empty(0, np.int32))


@given(lengths_of, st.sampled_from([0.0, 0.15]), st.booleans(), st.randoms())
def test_sequences_are_taken_in_any_order(lengths: list[int], share: float, has_pairs: bool, random: Random) -> None:
    batch = batch_of(lengths, share, has_pairs)
    if random.random() < 0.5:
        batch = replace(batch, draws=np.arange(len(batch.masked_positions), dtype=np.int32))
    batch = replace(batch, input_ids=np.arange(len(batch.input_ids), dtype=np.int32))
    rows = np.array([random.randrange(len(lengths)) for _ in range(5)])
    expected = PackedBatch.concatenate([batch.split(1)[row] for row in rows])
    for name, values in vars(batch.take(rows)).items():
        assert np.array_equal(values, getattr(expected, name)), name
        assert values.dtype == getattr(expected, name).dtype


@given(lengths_of, st.sampled_from([0.0, 0.15]), st.booleans())
def test_a_filled_batch_has_its_own_content_in_front_and_the_buckets_sizes(
    lengths: list[int], share: float, has_pairs: bool
) -> None:
    batch = batch_of(lengths, share, has_pairs)
    bucket = SizeBucket.of(batch, LONGEST)
    filled = bucket.fill(batch)
    for name, values in vars(batch).items():
        found = getattr(filled, name)
        np.testing.assert_array_equal(found[: len(values)], values, err_msg=name)
        assert found.dtype == values.dtype, name
    assert len(filled.input_ids) == len(filled.token_type_ids) == filled.cu_seqlens[-1] == bucket.num_tokens
    assert filled.num_sequences == bucket.num_sequences == batch.num_sequences + bucket.num_fillers
    assert len(filled.masked_positions) == len(filled.masked_labels) == bucket.num_predictions
    assert len(filled.sentence_labels) == (filled.num_sequences if has_pairs else 0) == bucket.num_sentence_labels
    filler_lengths = np.diff(filled.cu_seqlens)[batch.num_sequences :]
    assert len(filler_lengths) >= 1
    assert 1 <= filler_lengths.min() <= filler_lengths.max() <= bucket.max_seqlen <= LONGEST
    assert max(lengths) <= bucket.max_seqlen
    assert (filled.masked_labels[len(batch.masked_labels) :] == -100).all()
    assert (filled.masked_positions[len(batch.masked_positions) :] == len(batch.input_ids)).all()
    assert (filled.sentence_labels[len(batch.sentence_labels) :] == -100).all()


@given(lengths_of)
def test_filler_is_an_eighth_and_a_token_for_each_sequence_of_it_at_most(lengths: list[int]) -> None:
    batch = batch_of(lengths)
    bucket = SizeBucket.of(batch, LONGEST)
    num_tokens, num_predictions = len(batch.input_ids), len(batch.masked_positions)
    assert bucket.num_tokens <= 1.125 * num_tokens + bucket.num_fillers
    assert bucket.num_predictions <= 1.125 * num_predictions + 1
    assert bucket.max_seqlen <= max(1.125 * max(lengths), 3)


def test_batches_of_a_run_meet_few_buckets() -> None:
    """Lengths evenly spread, as where 56 % of the places hold tokens: a thousand batches of 256."""
    generator = np.random.default_rng(0)
    buckets = {SizeBucket.of(batch_of(generator.integers(16, 129, 256).tolist()), LONGEST) for _ in range(1000)}
    assert 1 <= len(buckets) <= 10


@pytest.mark.parametrize("longest", [48, 50, 128])
def test_sequences_are_never_longer_than_the_model_reads(longest: int) -> None:
    batch = batch_of([48] * 40)
    bucket = SizeBucket.of(batch, longest)
    assert bucket.max_seqlen == 48
    assert np.diff(bucket.fill(batch).cu_seqlens).max() <= 48
