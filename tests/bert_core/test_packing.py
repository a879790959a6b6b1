"""Batches without padding. Alone: pytest tests/bert_core/test_packing.py"""

import numpy as np

from bert_core.masking import MaskingConfig
from bert_core.packing import PackedBatch, build_packed_batch
from tests.bert_core.test_segment_pairs import CLS, SEP, all_examples, documents


def batch(**changes: object) -> PackedBatch:
    docs = documents()
    document, pairs = all_examples(docs, **changes)
    return build_packed_batch(
        docs,
        pairs,
        MaskingConfig(vocab_size=50_000, mask_token_id=4),
        cls_id=CLS,
        sep_id=SEP,
        seed=1,
        epoch=0,
        example=np.arange(len(document)),
    )


def restored(packed: PackedBatch) -> np.ndarray:
    ids = packed.input_ids.copy()
    ids[packed.masked_positions] = packed.masked_labels
    return ids


def test_special_tokens_are_never_predicted() -> None:
    packed = batch()
    assert not np.isin(packed.masked_labels, [CLS, SEP]).any()
    assert (restored(packed)[packed.cu_seqlens[:-1]] == CLS).all()


def test_share_of_predicted_positions_is_that_of_each_sequence() -> None:
    packed = batch()
    per_row = np.histogram(packed.masked_positions, packed.cu_seqlens)[0]
    assert (per_row == np.maximum(np.rint((np.diff(packed.cu_seqlens) - 3) * 0.15), 1)).all()


def test_split_and_concatenate_are_inverse() -> None:
    packed = batch()
    for size in (1, 7, 10_000):
        again = PackedBatch.concatenate(packed.split(size))
        for name in PackedBatch.__dataclass_fields__:
            assert (getattr(again, name) == getattr(packed, name)).all()
            assert getattr(again, name).dtype == getattr(packed, name).dtype


def test_parts_of_a_split_stand_for_themselves() -> None:
    packed = batch()
    parts = packed.split(5)
    assert [part.num_sequences for part in parts[:-1]] == [5] * (len(parts) - 1)
    assert all(part.cu_seqlens[0] == 0 and part.cu_seqlens[-1] == len(part.input_ids) for part in parts)
    assert np.concatenate([restored(part) for part in parts]).tolist() == restored(packed).tolist()


def test_single_segments_have_no_next_sentence_labels() -> None:
    packed = batch(pairs=False)
    assert len(packed.next_sentence_labels) == 0
    assert [len(part.next_sentence_labels) for part in packed.split(4)] == [0] * len(packed.split(4))
