"""Single sequences, without a sentence objective (Liu et al. 2019, section 4.2): DOC-SENTENCES and FULL-SENTENCES.

Sequences are full: a stretch that exceeds its sequence loses its end, or its front where it was moved back to reach the
last token there is. Of a single sentence that exceeds it, a random part is taken. So all tokens have their turn.
"""

import numpy as np
from numpy.typing import NDArray

from bert_core.counter_random import integers
from bert_core.examples.segments import Segments
from bert_core.examples.stretches import Numbered, Stretches, document_stretches, stretches
from bert_core.ragged_rows import Int64Array, ragged_ranges

_NO_LABELS: NDArray[np.int8] = np.zeros(0, np.int8)


def document_sentences(numbered: Numbered, short_seq_prob: float) -> Segments:
    """Sentences of one document, up to its end at most: DOC-SENTENCES."""
    documents, capacity = numbered.documents, numbered.single_capacity
    found = document_stretches(numbered, numbered.targets(capacity, short_seq_prob))
    begin, end = _cut(numbered, documents.sentence_offsets, found, capacity)
    return Segments(begin, end - begin, np.arange(len(begin) + 1), _NO_LABELS)


def full_sentences(numbered: Numbered, short_seq_prob: float) -> Segments:
    """Sentences that go on past a document's end with the next document, a separator between them: FULL-SENTENCES.

    The next document is the next of `numbered.documents`. Places are counted with a separator after each document,
    which is what keeps a sequence within its limit.
    """
    documents, capacity = numbered.documents, numbered.single_capacity
    borders = documents.separated_offsets
    document_begins = borders[documents.document_offsets]  # and the end of the last
    section_begins = document_begins[numbered.section_offsets]
    found = stretches(
        numbered,
        borders,
        numbered.targets(capacity, short_seq_prob),
        section=(section_begins[numbered.section], section_begins[numbered.section + 1]),
        bounds=(0, int(document_begins[-1])),
    )
    begin, end = _cut(numbered, borders, found, capacity)
    begin += np.isin(begin + 1, document_begins)  # no sequence begins with a separator
    return _split_at_documents(document_begins, begin, end)


def _cut(numbered: Numbered, borders: Int64Array, found: Stretches, capacity: int) -> tuple[Int64Array, Int64Array]:
    """Places [begin, end), each (n,), of at most `capacity` tokens of each stretch."""
    begin, end = borders[found.first], borders[found.last]
    excess = np.maximum(end - begin - capacity, 0)
    is_single = found.last - found.first == 1
    begin = begin + np.where(is_single, integers(numbered.keys, 7, excess + 1), excess * found.is_held)
    return begin, np.minimum(end, begin + capacity)


def _split_at_documents(document_begins: Int64Array, begin: Int64Array, end: Int64Array) -> Segments:
    """A segment for each document that the places [begin, end) of n examples touch."""
    first = np.searchsorted(document_begins, begin, side="right") - 1
    num_segments = np.searchsorted(document_begins, end, side="left") - first
    document = ragged_ranges(first, num_segments)
    starts = np.maximum(document_begins[document], np.repeat(begin, num_segments))
    ends = np.minimum(document_begins[document + 1] - 1, np.repeat(end, num_segments))
    offsets = np.append(0, np.cumsum(num_segments))
    return Segments(starts - document, ends - starts, offsets, _NO_LABELS)
