"""Next-sentence prediction: does segment B follow segment A, or was it taken from another document?

Devlin et al. 2019, section 3.1 (task 2) and appendix A.2: a chunk of consecutive sentences is split at a sentence
border into A and B. Half the time, B is thrown away and taken from a random place of another document.

The original script uses the sentences that a random B displaced for its next example. Here A is the front or the tail
of its chunk where B is random, so that every sentence can be seen.

Shapes: n examples.
"""

import numpy as np
from numpy.typing import NDArray

from bert_core.counter_random import integers, uniform
from bert_core.errors import DataError
from bert_core.examples.segments import (
    ExampleRequest,
    Segments,
    TokenizedDocuments,
    document_chunks,
    fit_pairs,
    sentence_after,
)
from bert_core.objectives.base import SentenceObjective
from bert_core.ragged_rows import Int64Array


class NextSentence(SentenceObjective):
    """Question whether segment B follows segment A; the labels count as in BertForPreTraining."""

    name = "next_sentence"
    summary = "does B follow A (BERT)"
    metric_prefix = "nsp"
    answers = ("B follows A", "B is from another document")
    min_document_sentences = 2
    min_window_documents = 2

    def cut_pairs(self, request: ExampleRequest, short_seq_prob: float) -> Segments:
        """Pairs of which about half are random. Raises: DataError when there is only one document."""
        documents, keys = request.documents, request.keys
        if documents.num_documents < 2:
            raise DataError(
                "next-sentence prediction draws a random B from another document; here is only one document"
            )
        capacity = request.pair_capacity
        targets = request.target_lengths(capacity, short_seq_prob)
        chunks = document_chunks(request, targets)
        first, last = chunks.first, chunks.last

        num_sentences = last - first
        middle = first + 1 + integers(keys, 3, np.maximum(num_sentences - 1, 1))
        is_random = (num_sentences == 1) | (uniform(keys, 4) < 0.5)
        is_tail = is_random & (num_sentences > 1) & (uniform(keys, 9) < 0.5)
        a_first, a_last = np.where(is_tail, middle, first), np.where(is_tail, last, middle)
        offsets = documents.sentence_offsets
        a_lengths = offsets[a_last] - offsets[a_first]
        other_first, other_last = _random_sentences(documents, request.section, targets - a_lengths, keys)
        b_first = np.where(is_random, other_first, middle)
        b_last = np.where(is_random, other_last, last)
        b_lengths = offsets[b_last] - offsets[b_first]
        return fit_pairs(keys, capacity, (offsets[a_first], a_lengths), (offsets[b_first], b_lengths), is_random)


def _random_sentences(
    documents: TokenizedDocuments, document: Int64Array, num_tokens: Int64Array, keys: NDArray[np.uint64]
) -> tuple[Int64Array, Int64Array]:
    """Sentences [first, last), each (n,), of about `num_tokens` (n,) tokens from a random document but `document`."""
    other = integers(keys, 5, documents.num_documents - 1)
    other += other >= document
    begin, end = documents.document_offsets[other], documents.document_offsets[other + 1]
    first = begin + integers(keys, 6, end - begin)
    return first, sentence_after(documents, first, num_tokens, other)


class SentenceOrder(SentenceObjective):
    """Question which segment of two consecutive ones comes first; the labels count as in AlbertForPreTraining.

    Lan et al. 2020, section 3.1. A chunk of one sentence is split at a random token. (ALBERT's script takes B from
    another document there and calls the pair swapped, which asks for the topic again.)
    """

    name = "sentence_order"
    summary = "which of them comes first (ALBERT)"
    metric_prefix = "sop"
    answers = ("A comes before B in its document", "A comes after B in its document")
    min_document_tokens = 2

    def cut_pairs(self, request: ExampleRequest, short_seq_prob: float) -> Segments:
        """Pairs of which about half are swapped."""
        keys, offsets = request.keys, request.documents.sentence_offsets
        capacity = request.pair_capacity
        chunks = document_chunks(request, request.target_lengths(capacity, short_seq_prob))
        first, last = chunks.first, chunks.last

        begin, end = offsets[first], offsets[last]
        middle = offsets[first + 1 + integers(keys, 3, np.maximum(last - first - 1, 1))]
        middle = np.where(last - first == 1, begin + 1 + integers(keys, 10, np.maximum(end - begin - 1, 1)), middle)
        is_swapped = uniform(keys, 4) < 0.5
        front, back = (begin, middle - begin), (middle, end - middle)
        a, b = (
            (np.where(is_swapped, late[0], early[0]), np.where(is_swapped, late[1], early[1]))
            for early, late in ((front, back), (back, front))
        )
        return fit_pairs(keys, capacity, a, b, is_swapped)
