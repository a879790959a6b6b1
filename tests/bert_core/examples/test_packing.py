"""Batches without padding. Alone: pytest tests/bert_core/examples/test_packing.py"""

from dataclasses import replace

import numpy as np
import pytest

from bert_core.config_choices import MaskUnit
from bert_core.examples.packing import PackedBatch, build_packed_batch
from bert_core.masking import MaskingConfig
from bert_core.text.word_boundaries import MARKS, WordBoundaries, WordMark
from tests.bert_core.small_documents import BERT, all_examples, documents

CLS, SEP = BERT.prefix, BERT.suffix
MASKING = MaskingConfig(vocab_size=50_000, mask_token_id=4)


def batch(masking: MaskingConfig = MASKING, **changes: object) -> PackedBatch:
    docs = documents()
    document, pairs = all_examples(docs, **changes)
    return build_packed_batch(
        docs,
        pairs,
        masking,
        layout=BERT,
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


def test_sentence_labels_are_those_of_the_segments() -> None:
    _, pairs = all_examples(documents())
    packed = batch()
    assert packed.sentence_labels.tolist() == pairs.sentence_labels.tolist()
    assert packed.split(5)[1].sentence_labels.tolist() == pairs.sentence_labels[5:10].tolist()


def test_single_segments_have_no_sentence_labels() -> None:
    packed = batch(objective="none")
    assert len(packed.sentence_labels) == 0
    assert [len(part.sentence_labels) for part in packed.split(4)] == [0] * len(packed.split(4))


def test_separators_inside_a_sequence_are_never_predicted() -> None:
    packed = batch(objective="none", cross_documents=True)
    assert (restored(packed) == SEP).sum() > packed.num_sequences + 10
    assert not np.isin(packed.masked_labels, [CLS, SEP]).any()


@pytest.mark.parametrize("unit", ["word", "span"])
@pytest.mark.parametrize("mark", [MARKS[0], MARKS[-1]], ids=["joined with the one before", "joined with the next"])
def test_words_are_hidden_whole_by_the_vocabularys_marks(unit: MaskUnit, mark: WordMark) -> None:
    joined = (np.arange(50_000) % 3 == 0) & (np.arange(50_000) > SEP)
    packed = batch(replace(MASKING, unit=unit, word_pieces=WordBoundaries(mark, joined)))
    original, hidden = restored(packed), np.zeros(len(packed.input_ids), bool)
    hidden[packed.masked_positions] = True
    same_word = joined[original[:-1] if mark.at_end else original[1:]]
    same_word &= ~np.isin(original[:-1], [CLS, SEP]) & ~np.isin(original[1:], [CLS, SEP])
    assert same_word.sum() > 1000
    assert (hidden[1:] == hidden[:-1])[same_word].all()
