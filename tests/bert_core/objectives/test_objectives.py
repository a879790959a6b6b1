"""Objectives: what each labels and masks, and properties of all sentence objectives.

Alone: pytest tests/bert_core/objectives/test_objectives.py
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.config import BertConfig
from bert_core.errors import DataError
from bert_core.examples.segments import SegmentLayout, TokenizedDocuments
from bert_core.masking import MaskUnit
from bert_core.objectives import SENTENCE_OBJECTIVES, SegmentConfig, active_objectives, count_examples
from bert_core.text.word_boundaries import MARKS, WordBoundaries, WordMark
from tests.bert_core.packed_examples import CLS, MASKING, SEP, packed_examples, restored
from tests.bert_core.small_documents import BERT, ROBERTA, all_examples, document_of, documents, sides, times_seen


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


def test_label_says_whether_b_follows_a() -> None:
    docs = documents()
    document, pairs = all_examples(docs)
    a_starts, a_lengths, b_starts, b_lengths = sides(pairs)
    follows = document_of(docs, b_starts) == document
    assert (follows == (pairs.sentence_labels == 0)).all()
    untouched = follows & (a_lengths + b_lengths < 61)
    assert (b_starts >= a_starts + a_lengths)[follows].all()
    assert (b_starts == a_starts + a_lengths)[untouched].all()


def test_half_of_the_pairs_are_random() -> None:
    docs = documents(400)
    document, pairs = all_examples(docs)
    several = (docs.document_offsets[document + 1] - docs.document_offsets[document]) > 8
    assert abs(pairs.sentence_labels[several].mean() - 0.5) < 0.06


def test_one_document_cannot_lend_a_random_segment() -> None:
    with pytest.raises(DataError, match="only one document"):
        all_examples(documents(1))
    all_examples(documents(1), objective="sentence_order")


def test_order_is_that_of_two_neighbors_in_one_document() -> None:
    docs = documents()
    document, pairs = all_examples(docs, objective="sentence_order")
    a_starts, a_lengths, b_starts, b_lengths = sides(pairs)
    assert (document_of(docs, b_starts) == document).all()
    swapped = pairs.sentence_labels == 1
    early, late = np.where(swapped, b_starts, a_starts), np.where(swapped, a_starts, b_starts)
    border = early + np.where(swapped, b_lengths, a_lengths)
    assert (late >= border).all()
    assert (late == border)[a_lengths + b_lengths < 61].all()


@pytest.mark.parametrize("longest", [2, 30])  # documents of one sentence, and of many
def test_half_of_the_orders_are_swapped_whatever_the_documents(longest: int) -> None:
    _, pairs = all_examples(documents(3000, longest=longest), 48, "sentence_order")
    assert abs(pairs.sentence_labels.mean() - 0.5) < 0.03


def test_in_order_and_swapped_pairs_are_cut_alike() -> None:
    _, pairs = all_examples(documents(3000), 48, "sentence_order")
    a_lengths, swapped = pairs.lengths[::2], pairs.sentence_labels == 1
    assert abs(a_lengths[swapped].mean() - a_lengths[~swapped].mean()) < 0.5


def test_a_single_sentence_is_split_at_any_of_its_tokens() -> None:
    docs = TokenizedDocuments(np.arange(10, 15, dtype=np.uint16), np.array([0, 5]), np.array([0, 1]))
    fronts = set()
    for epoch in range(60):
        _, pairs = all_examples(docs, objective="sentence_order", epoch=epoch)
        front, back = sorted(zip(pairs.starts.tolist(), pairs.lengths.tolist(), strict=True))
        assert (front[0], sum(front), sum(back)) == (0, back[0], 5)
        fronts.add(front[1])
    assert fronts == {1, 2, 3, 4}


def test_a_document_of_one_token_has_no_order() -> None:
    lengths = np.array([1, 2, 500, 1])
    assert count_examples(lengths, 64, BERT, SegmentConfig("sentence_order")).tolist() == [0, 1, 8, 0]
    assert count_examples(lengths, 64, BERT, SegmentConfig()).tolist() == [1, 1, 8, 1]


def test_a_run_that_masks_has_the_objective_where_its_model_has_the_head() -> None:
    model = BertConfig(span_boundary_objective=True)
    assert active_objectives(["masked_lm"], model) == ("masked_lm", "span_boundary")
    assert active_objectives(["masked_lm"], BertConfig()) == ("masked_lm",)
    assert active_objectives(["next_sentence"], model) == ("next_sentence",)


@given(
    st.sampled_from(list(SENTENCE_OBJECTIVES)),
    st.sampled_from([BERT, ROBERTA]),
    st.integers(2, 30),
    st.integers(8, 128),
    st.integers(0, 10_000),
)
@settings(max_examples=60, deadline=None)
def test_pairs_fit_and_are_never_empty(
    objective: str, layout: SegmentLayout, num_documents: int, length: int, seed: int
) -> None:
    _, pairs = all_examples(documents(num_documents, seed), length, objective, layout=layout, seed=seed)
    _, a_lengths, _, b_lengths = sides(pairs)
    assert (a_lengths + b_lengths <= length - layout.num_pair_specials).all()
    assert pairs.lengths.min() >= 1


@given(st.sampled_from([BERT, ROBERTA]), st.integers(1, 10_000), st.integers(8, 512))
@settings(max_examples=60, deadline=None)
def test_examples_of_a_document_are_its_tokens_over_the_tokens_of_a_pair(
    layout: SegmentLayout, num_tokens: int, length: int
) -> None:
    count = count_examples(np.array([num_tokens]), length, layout, SegmentConfig()).item()
    specials = 4 if layout is ROBERTA else 3
    assert count == max(1, math.floor(num_tokens / (length - specials) + 0.5))


@pytest.mark.parametrize("objective", SENTENCE_OBJECTIVES)
def test_segments_stay_inside_one_document(objective: str) -> None:
    docs = documents()
    document, pairs = all_examples(docs, objective=objective)
    assert (document_of(docs, pairs.starts) == document_of(docs, pairs.starts + pairs.lengths - 1)).all()
    assert (document_of(docs, pairs.starts[::2]) == document).all()


def test_segments_fill_the_target_where_the_document_is_long_enough() -> None:
    docs = documents(400)
    document, pairs = all_examples(docs, short=0.0)
    long = (np.diff(docs.document_ends)[document] > 100) & (pairs.sentence_labels == 0)
    assert (pairs.lengths[::2] + pairs.lengths[1::2])[long].min() == 61


def test_short_sequences_come_with_their_probability() -> None:
    docs = documents(600)
    _, pairs = all_examples(docs, 48, short=0.0)
    _, some_short = all_examples(docs, 48, short=0.1)
    changed = (pairs.lengths != some_short.lengths).reshape(-1, 2).any(axis=1)
    assert 0.04 < changed.mean() < 0.11


@pytest.mark.parametrize("objective", SENTENCE_OBJECTIVES)
def test_every_token_is_seen_about_once_an_epoch(objective: str) -> None:
    docs = documents(60, longest=80)
    seen = times_seen(docs, 200, objective=objective, short=0.0)[
        np.repeat(np.diff(docs.document_ends) > 1, np.diff(docs.document_ends))
    ]
    assert abs(seen.mean() - 1.0) < 0.15
    assert np.quantile(seen, 0.01) > 0.4
    assert seen.min() > 0.05  # the outermost sentence of a long document is seen least


@pytest.mark.parametrize("objective", SENTENCE_OBJECTIVES)
def test_a_row_depends_on_its_own_example_alone(objective: str) -> None:
    docs, chosen = documents(), np.array([17, 3, 40])
    _, pairs = all_examples(docs, objective=objective)
    _, alone = all_examples(docs, objective=objective, only=chosen)
    for name in ("starts", "lengths"):
        assert (getattr(alone, name).reshape(-1, 2) == getattr(pairs, name).reshape(-1, 2)[chosen]).all()
    assert (alone.sentence_labels == pairs.sentence_labels[chosen]).all()


@pytest.mark.parametrize("objective", SENTENCE_OBJECTIVES)
def test_pairs_are_new_every_epoch_and_seed(objective: str) -> None:
    docs = documents()
    starts = [
        all_examples(docs, objective=objective, **change)[1].starts[::2] for change in ({}, {"epoch": 1}, {"seed": 2})
    ]
    assert (starts[0] != starts[1]).mean() > 0.3
    assert (starts[0] != starts[2]).mean() > 0.3
