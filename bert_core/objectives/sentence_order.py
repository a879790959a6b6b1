"""Sentence order: which of two consecutive segments of a document comes first? (Lan et al. 2020, section 3.1.)

A chunk of one sentence is split at a random token. (ALBERT's script takes B from another document there and calls the
pair swapped, which asks for the topic again.)
"""

import numpy as np

from bert_core.counter_random import integers, uniform
from bert_core.examples.chunks import ExampleRequest, document_chunks
from bert_core.examples.segments import Segments, fit_pairs
from bert_core.objectives.base import SentenceObjective


class SentenceOrder(SentenceObjective):
    """Question which segment comes first; the labels count as in AlbertForPreTraining."""

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
