"""Next-sentence prediction. Alone: pytest tests/bert_core/objectives/test_next_sentence.py"""

import pytest

from bert_core.errors import DataError
from tests.bert_core.small_documents import all_examples, document_of, documents, sides


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
