"""Single sequences, inside documents and across them. Alone: pytest tests/bert_core/examples/test_full_sentences.py"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.examples.segments import TokenizedDocuments, lay_out
from tests.bert_core.small_documents import BERT, all_examples, document_of, documents, times_seen


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


def test_one_document_shorter_than_a_sequence_is_one_example() -> None:
    docs = documents(1, longest=2)
    _, segments = all_examples(docs, objective="none", cross_documents=True, short=0.0)
    assert (segments.starts.tolist(), segments.lengths.tolist()) == ([0], [len(docs.tokens)])


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
