"""Examples: packed batches, pairs, segments and full sentences.

Alone: pytest tests/bert_core/examples/test_examples.py
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import SegmentLayout, TokenizedDocuments, lay_out, truncated_lengths
from tests.bert_core.packed_examples import packed_examples, restored
from tests.bert_core.small_documents import BERT, ROBERTA, all_examples, document_of, documents, times_seen


def test_split_and_concatenate_are_inverse() -> None:
    packed = packed_examples()
    for size in (1, 7, 10_000):
        again = PackedBatch.concatenate(packed.split(size))
        for name in PackedBatch.__dataclass_fields__:
            assert (getattr(again, name) == getattr(packed, name)).all()
            assert getattr(again, name).dtype == getattr(packed, name).dtype


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


@pytest.mark.heavy
@pytest.mark.core
@given(st.integers(1, 60), st.integers(1, 60), st.integers(2, 60))
@settings(max_examples=300, deadline=None)
def test_truncation_cuts_the_longer_token_by_token(a: int, b: int, capacity: int) -> None:
    long_a, long_b = a, b
    while long_a + long_b > capacity:
        if long_a > long_b:
            long_a -= 1
        else:
            long_b -= 1
    kept_a, kept_b = truncated_lengths(np.array([a]), np.array([b]), capacity)
    assert (kept_a[0], kept_b[0]) == (long_a, long_b)


LAYOUTS = (BERT, ROBERTA, SegmentLayout(prefix=7, between=(8, 9, 6), suffix=5, type_of_second=1))


@given(
    st.sampled_from(LAYOUTS),
    st.sampled_from([("next_sentence", False), ("sentence_order", False), ("none", False), ("none", True)]),
    st.integers(2, 20),
    st.integers(8, 100),
    st.integers(0, 10_000),
)
@settings(max_examples=60, deadline=None)
def test_examples_are_laid_out_token_by_token(
    layout: SegmentLayout, objective: tuple[str, bool], num_documents: int, length: int, seed: int
) -> None:
    docs = documents(num_documents, seed)
    _, segments = all_examples(docs, length, objective[0], layout=layout, cross_documents=objective[1])
    laid = lay_out(docs, segments, layout)
    assert np.diff(laid.cu_seqlens).max() <= length
    for row, (begin, end) in enumerate(zip(laid.cu_seqlens[:-1], laid.cu_seqlens[1:], strict=True)):
        ids, types = [layout.prefix], [0]
        places = range(*segments.example_offsets[row : row + 2])
        for place in places:
            part = docs.tokens[segments.starts[place] :][: segments.lengths[place]].tolist()
            closing = layout.between if segments.is_pairs and place != places[-1] else (layout.suffix,)
            ids += [*part, *closing]
            second = segments.is_pairs and place == places[-1]
            types += [layout.type_of_second * second] * (len(part) + len(closing))
        assert laid.input_ids[begin:end].tolist() == ids
        assert laid.token_type_ids[begin:end].tolist() == types
        assert (laid.is_special[begin:end] == (np.array(ids) < 10)).all()


def test_documents_concatenate_in_order() -> None:
    first, second = documents(5, 1), documents(7, 2)
    both = TokenizedDocuments.concatenate([first, second])
    assert both.num_documents == 12
    assert np.diff(both.document_ends).tolist() == [*np.diff(first.document_ends), *np.diff(second.document_ends)]


@given(st.booleans(), st.integers(1, 30), st.integers(8, 128), st.integers(1, 40), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_sequences_fit_and_are_never_empty(
    cross: bool, num_documents: int, length: int, longest: int, seed: int
) -> None:
    docs = documents(num_documents, seed, longest + 1)
    _, segments = all_examples(docs, length, "none", cross_documents=cross, seed=seed)
    laid = lay_out(docs, segments, BERT)
    assert not segments.is_pairs
    assert np.diff(laid.cu_seqlens).max() <= length
    assert segments.lengths.min() >= 1
    is_first = np.isin(np.arange(len(segments.starts)), segments.example_offsets)
    assert np.isin(segments.starts[~is_first], docs.document_ends).all()


def test_sequences_of_a_document_stay_inside_it() -> None:
    docs = documents()
    document, segments = all_examples(docs, objective="none", short=0.0)
    assert (document_of(docs, segments.starts) == document).all()
    assert (document_of(docs, segments.starts + segments.lengths - 1) == document).all()
    assert segments.lengths.max() == 62


def test_sequences_across_documents_go_on_with_the_next_one() -> None:
    docs = documents(longest=6)
    _, segments = all_examples(docs, objective="none", cross_documents=True)
    ends = segments.starts + segments.lengths
    goes_on = np.setdiff1d(np.arange(1, len(segments.starts)), segments.example_offsets)  # not an example's first
    assert len(goes_on) > 20
    assert (segments.starts[goes_on] == ends[goes_on - 1]).all()
    assert np.isin(segments.starts[goes_on], docs.document_ends).all()
    assert (document_of(docs, segments.starts) == document_of(docs, ends - 1)).all()


def test_sequences_across_documents_are_full() -> None:
    docs = documents(longest=6)
    _, segments = all_examples(docs, objective="none", cross_documents=True, short=0.0)
    lengths = np.diff(lay_out(docs, segments, BERT).cu_seqlens)
    assert lengths.min() >= 63  # a sequence that would end with the next document's separator alone does not
    within = lay_out(docs, all_examples(docs, objective="none", short=0.0)[1], BERT)
    assert np.diff(within.cu_seqlens).mean() < 50


@pytest.mark.parametrize(("cross", "longest"), [(False, 80), (True, 80), (True, 3)])
def test_every_token_is_seen_about_once_an_epoch(cross: bool, longest: int) -> None:
    docs = documents(60, longest=longest)
    seen = times_seen(docs, 200, objective="none", cross_documents=cross, short=0.0)
    assert abs(seen.mean() - 1.0) < 0.1
    assert 0.3 < np.quantile(seen, 0.01) <= np.quantile(seen, 0.99) < 1.8
    assert seen.min() > 0.1


@pytest.mark.parametrize("cross", [False, True])
def test_all_of_a_sentence_longer_than_a_sequence_is_seen(cross: bool) -> None:
    docs = TokenizedDocuments(np.arange(10, 410, dtype=np.uint16), np.array([0, 5, 395, 400]), np.array([0, 3]))
    assert times_seen(docs, 200, objective="none", cross_documents=cross).min() > 0.05


def test_a_row_depends_on_its_own_example_alone() -> None:
    docs, chosen = documents(), np.array([17, 3, 25])
    _, everything = all_examples(docs, objective="none", cross_documents=True)
    _, alone = all_examples(docs, objective="none", cross_documents=True, only=chosen)
    for row, example in enumerate(chosen):
        for name in ("starts", "lengths"):
            here = getattr(alone, name)[slice(*alone.example_offsets[row : row + 2])]
            assert (
                here.tolist()
                == getattr(everything, name)[slice(*everything.example_offsets[example : example + 2])].tolist()
            )
