"""Sentence order. Alone: pytest tests/bert_core/objectives/test_sentence_order.py"""

import numpy as np
import pytest

from bert_core.examples.segments import TokenizedDocuments
from bert_core.objectives.packed_batches import SegmentConfig, count_examples
from tests.bert_core.small_documents import BERT, all_examples, document_of, documents, sides


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
