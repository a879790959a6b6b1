"""Sentence pairs: next-sentence prediction and sentence order, for whole arrays of examples at once.

As in BERT (Devlin et al. 2019, section 3.1 and appendix A.2): a stretch of consecutive sentences is split at a sentence
border into A and B; half the time B is thrown away and filled again from a random place of another document, or, for
the order (Lan et al. 2020, section 3.1), A and B change places; a pair that is too long loses tokens from the longer
segment, at its front or back.

The original script takes up again what a random B displaced. Here A is the front or the tail of its stretch where B is
random, so that all places are seen. Of the tokens that are cut, a uniform share is cut at the front, in place of a coin
per token.
"""

import numpy as np
from numpy.typing import NDArray

from bert_core.counter_random import integers, uniform
from bert_core.errors import DataError
from bert_core.examples.segments import Segments, TokenizedDocuments
from bert_core.examples.stretches import Numbered, document_stretches, reach
from bert_core.ragged_rows import Int64Array


def next_sentence_pairs(numbered: Numbered, short_seq_prob: float) -> Segments:
    """A and what follows it (label 0), or A and sentences of another document (1).

    Raises: DataError when there is but one document to draw a random B from.
    """
    documents, keys = numbered.documents, numbered.keys
    if documents.num_documents < 2:
        raise DataError("next-sentence prediction draws a random B from another document; here is only one document")
    capacity = numbered.pair_capacity
    targets = numbered.targets(capacity, short_seq_prob)
    stretches = document_stretches(numbered, targets)
    first, last = stretches.first, stretches.last

    num_sentences = last - first
    middle = first + 1 + integers(keys, 3, np.maximum(num_sentences - 1, 1))
    is_random = (num_sentences == 1) | (uniform(keys, 4) < 0.5)
    is_tail = is_random & (num_sentences > 1) & (uniform(keys, 9) < 0.5)
    a_first, a_last = np.where(is_tail, middle, first), np.where(is_tail, last, middle)
    offsets = documents.sentence_offsets
    a_lengths = offsets[a_last] - offsets[a_first]
    other_first, other_last = _random_stretches(documents, numbered.section, targets - a_lengths, keys)
    b_first = np.where(is_random, other_first, middle)
    b_last = np.where(is_random, other_last, last)
    b_lengths = offsets[b_last] - offsets[b_first]
    return _fitted(keys, capacity, (offsets[a_first], a_lengths), (offsets[b_first], b_lengths), is_random)


def sentence_order_pairs(numbered: Numbered, short_seq_prob: float) -> Segments:
    """Two consecutive segments of a document, in order (label 0, as AlbertForPreTraining counts) or swapped (1).

    A stretch of one sentence is split at a random token of it. (ALBERT's script fills B from another document there
    and calls the pair swapped, which asks for the topic again.) Examples come from documents of two tokens or more.
    """
    keys, offsets = numbered.keys, numbered.documents.sentence_offsets
    capacity = numbered.pair_capacity
    targets = numbered.targets(capacity, short_seq_prob)
    stretches = document_stretches(numbered, targets)
    first, last = stretches.first, stretches.last

    begin, end = offsets[first], offsets[last]
    middle = offsets[first + 1 + integers(keys, 3, np.maximum(last - first - 1, 1))]
    middle = np.where(last - first == 1, begin + 1 + integers(keys, 10, np.maximum(end - begin - 1, 1)), middle)
    is_swapped = uniform(keys, 4) < 0.5
    front, back = (begin, middle - begin), (middle, end - middle)
    a, b = (
        (np.where(is_swapped, late[0], early[0]), np.where(is_swapped, late[1], early[1]))
        for early, late in ((front, back), (back, front))
    )
    return _fitted(keys, capacity, a, b, is_swapped)


def _random_stretches(
    documents: TokenizedDocuments, document: Int64Array, num_tokens: Int64Array, keys: NDArray[np.uint64]
) -> tuple[Int64Array, Int64Array]:
    """For each example, sentences [first, last) from a random place of a random other document."""
    other = integers(keys, 5, documents.num_documents - 1)
    other += other >= document
    begin, end = documents.document_offsets[other], documents.document_offsets[other + 1]
    first = begin + integers(keys, 6, end - begin)
    return first, reach(documents, first, num_tokens, other)


def _fitted(
    keys: NDArray[np.uint64],
    capacity: int,
    a: tuple[Int64Array, Int64Array],
    b: tuple[Int64Array, Int64Array],
    labels: NDArray[np.bool_],
) -> Segments:
    """The pairs of A and B, each given as starts and lengths, cut so that both together fit."""
    (a_starts, a_lengths), (b_starts, b_lengths) = a, b
    a_kept, b_kept = _truncate(a_lengths, b_lengths, capacity)
    a_starts = a_starts + integers(keys, 7, a_lengths - a_kept + 1)
    b_starts = b_starts + integers(keys, 8, b_lengths - b_kept + 1)
    return Segments.pairs((a_starts, a_kept), (b_starts, b_kept), labels)


def _truncate(a: Int64Array, b: Int64Array, capacity: int) -> tuple[Int64Array, Int64Array]:
    """Lengths after cutting the longer of two (B where they are equal) token by token until both fit."""
    half = (capacity + 1) // 2
    a_kept = np.where(a + b <= capacity, a, np.minimum(a, np.maximum(half, capacity - b)))
    return a_kept, np.minimum(b, capacity - a_kept)
