"""Properties of all sentence objectives. Alone: pytest tests/bert_core/objectives/test_sentence_objectives.py"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.objectives import SENTENCE_OBJECTIVES
from bert_core.objectives.packed_batches import SegmentConfig, count_examples
from bert_core.text.segment_layout import SegmentLayout
from tests.bert_core.small_documents import BERT, ROBERTA, all_examples, document_of, documents, sides, times_seen


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
