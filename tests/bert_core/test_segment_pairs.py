"""Sentence pairs. Alone: pytest tests/bert_core/test_segment_pairs.py"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.errors import DataError
from bert_core.segment_pairs import (
    SegmentPairs,
    TokenizedDocuments,
    _truncate,
    assemble,
    build_segment_pairs,
    count_examples,
)

CLS, SEP = 2, 3


def documents(num_documents: int = 40, seed: int = 0, longest: int = 30) -> TokenizedDocuments:
    """Tokens are their own places (from 10), so that a segment shows where it was cut."""
    generator = np.random.default_rng(seed)
    sentences = generator.integers(1, longest, num_documents)
    lengths = generator.integers(1, 25, sentences.sum())
    sentence_offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.arange(10, 10 + sentence_offsets[-1]).astype(np.uint32)
    return TokenizedDocuments(tokens, sentence_offsets, np.concatenate([[0], np.cumsum(sentences)]))


def all_examples(docs: TokenizedDocuments, length: int = 64, **changes: object) -> tuple[np.ndarray, SegmentPairs]:
    counts = count_examples(np.diff(docs.document_ends), length)
    document = np.repeat(np.arange(docs.num_documents), counts)
    ordinal = np.concatenate([np.arange(count) for count in counts])
    options: dict = {"max_seq_length": length, "seed": 1, "epoch": 0, "example": np.arange(len(document))}
    return document, build_segment_pairs(docs, document, ordinal, **(options | changes))


def document_of(docs: TokenizedDocuments, places: np.ndarray) -> np.ndarray:
    return np.searchsorted(docs.document_ends, places, side="right") - 1


@given(st.integers(2, 30), st.integers(8, 128), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_pairs_fit_and_are_never_empty(num_documents: int, length: int, seed: int) -> None:
    _, pairs = all_examples(documents(num_documents, seed), length, seed=seed)
    assert (pairs.a_lengths + pairs.b_lengths <= length - 3).all()
    assert pairs.a_lengths.min() >= 1
    assert pairs.b_lengths.min() >= 1


def test_segments_stay_inside_one_document() -> None:
    docs = documents()
    document, pairs = all_examples(docs)
    assert (document_of(docs, pairs.a_starts) == document).all()
    assert (document_of(docs, pairs.a_starts + pairs.a_lengths - 1) == document).all()
    assert (document_of(docs, pairs.b_starts) == document_of(docs, pairs.b_starts + pairs.b_lengths - 1)).all()


def test_label_says_whether_b_follows_a() -> None:
    docs = documents()
    document, pairs = all_examples(docs)
    follows = document_of(docs, pairs.b_starts) == document
    assert (follows == (pairs.next_sentence_labels == 0)).all()
    untouched = follows & (pairs.a_lengths + pairs.b_lengths < 61)
    assert (pairs.b_starts >= pairs.a_starts + pairs.a_lengths)[follows].all()
    assert (pairs.b_starts == pairs.a_starts + pairs.a_lengths)[untouched].all()


def test_half_of_the_pairs_are_random() -> None:
    docs = documents(400)
    document, pairs = all_examples(docs)
    several = (docs.document_offsets[document + 1] - docs.document_offsets[document]) > 8
    assert abs(pairs.next_sentence_labels[several].mean() - 0.5) < 0.06


def test_segments_fill_the_target_where_the_document_is_long_enough() -> None:
    docs = documents(400)
    document, pairs = all_examples(docs, short_sequence_probability=0.0)
    long = (np.diff(docs.document_ends)[document] > 100) & (pairs.next_sentence_labels == 0)
    assert (pairs.a_lengths + pairs.b_lengths)[long].min() == 61


def test_short_sequences_come_with_their_probability() -> None:
    docs = documents(600)
    _, pairs = all_examples(docs, 48, short_sequence_probability=0.0)
    _, some_short = all_examples(docs, 48, short_sequence_probability=0.1)
    changed = (pairs.a_lengths != some_short.a_lengths) | (pairs.b_lengths != some_short.b_lengths)
    assert 0.04 < changed.mean() < 0.11


def test_every_token_is_seen_about_once_an_epoch() -> None:
    docs = documents(60, longest=80)
    seen = np.zeros(len(docs.tokens))
    for epoch in range(200):
        _, pairs = all_examples(docs, epoch=epoch, short_sequence_probability=0.0)
        for start, length in [(pairs.a_starts, pairs.a_lengths), (pairs.b_starts, pairs.b_lengths)]:
            np.add.at(seen, np.concatenate([np.arange(s, s + n) for s, n in zip(start, length, strict=True)]), 1)
    seen /= 200
    assert abs(seen.mean() - 1.0) < 0.15
    assert np.quantile(seen, 0.01) > 0.4
    assert seen.min() > 0.05  # the outermost sentence of a long document is seen least


def test_a_row_depends_on_its_own_example_alone() -> None:
    docs = documents()
    document, pairs = all_examples(docs)
    counts = count_examples(np.diff(docs.document_ends), 64)
    ordinal = np.concatenate([np.arange(count) for count in counts])
    chosen = np.array([17, 3, 40])
    alone = build_segment_pairs(
        docs, document[chosen], ordinal[chosen], max_seq_length=64, seed=1, epoch=0, example=chosen
    )
    for name in ("a_starts", "a_lengths", "b_starts", "b_lengths", "next_sentence_labels"):
        assert (getattr(alone, name) == getattr(pairs, name)[chosen]).all()


def test_pairs_are_new_every_epoch_and_seed() -> None:
    docs = documents()
    starts = [all_examples(docs, **change)[1].a_starts for change in ({}, {"epoch": 1}, {"seed": 2})]
    assert (starts[0] != starts[1]).mean() > 0.3
    assert (starts[0] != starts[2]).mean() > 0.3


@given(st.integers(1, 60), st.integers(1, 60), st.integers(2, 60))
@settings(max_examples=300, deadline=None)
def test_truncation_cuts_the_longer_token_by_token(a: int, b: int, capacity: int) -> None:
    long_a, long_b = a, b
    while long_a + long_b > capacity:
        if long_a > long_b:
            long_a -= 1
        else:
            long_b -= 1
    kept_a, kept_b = _truncate(np.array([a]), np.array([b]), capacity)
    assert (kept_a[0], kept_b[0]) == (long_a, long_b)


def test_examples_are_laid_out_as_bert_reads_them() -> None:
    docs = documents()
    _, pairs = all_examples(docs)
    ids, types, cu_seqlens = assemble(docs, pairs, cls_id=CLS, sep_id=SEP)
    for row in range(len(cu_seqlens) - 1):
        a = docs.tokens[pairs.a_starts[row] :][: pairs.a_lengths[row]].tolist()
        b = docs.tokens[pairs.b_starts[row] :][: pairs.b_lengths[row]].tolist()
        begin, end = cu_seqlens[row], cu_seqlens[row + 1]
        assert ids[begin:end].tolist() == [CLS, *a, SEP, *b, SEP]
        assert types[begin:end].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)


def test_single_segments_have_no_label_and_fill_the_sequence() -> None:
    docs = documents()
    _, singles = all_examples(docs, pairs=False, short_sequence_probability=0.0)
    ids, types, cu_seqlens = assemble(docs, singles, cls_id=CLS, sep_id=SEP)
    assert not singles.is_pairs
    assert types.max() == 0
    assert np.diff(cu_seqlens).max() == 64
    assert (ids[cu_seqlens[1:] - 1] == SEP).all()


def test_one_document_cannot_lend_a_random_segment() -> None:
    with pytest.raises(DataError, match="only one document"):
        all_examples(documents(1))
    all_examples(documents(1), pairs=False)


def test_documents_concatenate_in_order() -> None:
    first, second = documents(5, 1), documents(7, 2)
    both = TokenizedDocuments.concatenate([first, second])
    assert both.num_documents == 12
    assert np.diff(both.document_ends).tolist() == [*np.diff(first.document_ends), *np.diff(second.document_ends)]
