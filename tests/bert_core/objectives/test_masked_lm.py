"""Masked language modeling. Alone: pytest tests/bert_core/objectives/test_masked_lm.py"""

from dataclasses import replace

import numpy as np
import pytest

from bert_core.masking.units import MaskUnit
from bert_core.text.word_boundaries import MARKS, WordBoundaries, WordMark
from tests.bert_core.packed_examples import CLS, MASKING, SEP, packed_examples, restored


def test_special_tokens_are_never_predicted() -> None:
    packed = packed_examples()
    assert not np.isin(packed.masked_labels, [CLS, SEP]).any()
    assert (restored(packed)[packed.cu_seqlens[:-1]] == CLS).all()


def test_share_of_predicted_positions_is_that_of_each_sequence() -> None:
    packed = packed_examples()
    per_row = np.histogram(packed.masked_positions, packed.cu_seqlens)[0]
    assert (per_row == np.maximum(np.rint((np.diff(packed.cu_seqlens) - 3) * 0.15), 1)).all()


def test_separators_inside_a_sequence_are_never_predicted() -> None:
    packed = packed_examples(objective="none", cross_documents=True)
    assert (restored(packed) == SEP).sum() > packed.num_sequences + 10
    assert not np.isin(packed.masked_labels, [CLS, SEP]).any()


@pytest.mark.parametrize("unit", ["word", "span"])
@pytest.mark.parametrize("mark", [MARKS[0], MARKS[-1]], ids=["joined with the one before", "joined with the next"])
def test_words_are_hidden_whole_by_the_vocabularys_marks(unit: MaskUnit, mark: WordMark) -> None:
    joined = (np.arange(50_000) % 3 == 0) & (np.arange(50_000) > SEP)
    packed = packed_examples(replace(MASKING, unit=unit, word_boundaries=WordBoundaries(mark, joined)))
    original, hidden = restored(packed), np.zeros(len(packed.input_ids), bool)
    hidden[packed.masked_positions] = True
    same_word = joined[original[:-1] if mark.at_end else original[1:]]
    same_word &= ~np.isin(original[:-1], [CLS, SEP]) & ~np.isin(original[1:], [CLS, SEP])
    assert same_word.sum() > 1000
    assert (hidden[1:] == hidden[:-1])[same_word].all()
