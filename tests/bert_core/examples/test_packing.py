"""Batches without padding. Alone: pytest tests/bert_core/examples/test_packing.py"""

from itertools import pairwise

import numpy as np

from bert_core.examples.packing import PackedBatch
from tests.bert_core.packed_examples import packed_examples, restored
from tests.bert_core.small_documents import all_examples, documents


def test_split_and_concatenate_are_inverse() -> None:
    packed = packed_examples()
    for size in (1, 7, 10_000):
        again = PackedBatch.concatenate(packed.split(size))
        for name in PackedBatch.__dataclass_fields__:
            assert (getattr(again, name) == getattr(packed, name)).all()
            assert getattr(again, name).dtype == getattr(packed, name).dtype


def test_parts_of_a_split_stand_for_themselves() -> None:
    packed = packed_examples()
    parts = packed.split(5)
    assert [part.num_sequences for part in parts[:-1]] == [5] * (len(parts) - 1)
    assert all(part.cu_seqlens[0] == 0 and part.cu_seqlens[-1] == len(part.input_ids) for part in parts)
    assert np.concatenate([restored(part) for part in parts]).tolist() == restored(packed).tolist()


def test_parts_of_a_split_by_tokens_hold_as_many_sequences_as_fit() -> None:
    packed = packed_examples()
    longest = int(np.diff(packed.cu_seqlens).max())
    for num_tokens in (longest, 3 * longest, 10_000):
        parts = packed.split_by_tokens(num_tokens)
        assert np.concatenate([restored(part) for part in parts]).tolist() == restored(packed).tolist()
        assert max(len(part.input_ids) for part in parts) <= num_tokens
        for part, following in pairwise(parts):
            assert len(part.input_ids) + following.cu_seqlens[1] > num_tokens


def test_a_sequence_longer_than_the_tokens_of_a_part_is_a_part_by_itself() -> None:
    packed = packed_examples()
    assert [part.num_sequences for part in packed.split_by_tokens(1)] == [1] * packed.num_sequences


def test_sentence_labels_are_those_of_the_segments() -> None:
    _, pairs = all_examples(documents())
    packed = packed_examples()
    assert packed.sentence_labels.tolist() == pairs.sentence_labels.tolist()
    assert packed.split(5)[1].sentence_labels.tolist() == pairs.sentence_labels[5:10].tolist()


def test_single_segments_have_no_sentence_labels() -> None:
    packed = packed_examples(objective="none")
    assert len(packed.sentence_labels) == 0
    assert [len(part.sentence_labels) for part in packed.split(4)] == [0] * len(packed.split(4))
