"""Single sequences, for runs without a sentence objective: DOC-SENTENCES and FULL-SENTENCES (Liu et al. 2019,
section 4.2).

Sequences are full. A chunk that is longer than its sequence loses tokens at its end, or at its front where the chunk
was moved back to end at the last token. A single sentence that is too long gives a random part of itself. So every
token can be seen.

Shapes: n examples.
"""

import numpy as np
from numpy.typing import NDArray

from bert_core.counter_random import integers
from bert_core.examples.chunks import Chunks, ExampleRequest, document_chunks, find_chunks
from bert_core.examples.segments import Segments
from bert_core.ragged_rows import Int64Array, ragged_ranges

_NO_LABELS: NDArray[np.int8] = np.zeros(0, np.int8)


def document_sentences(request: ExampleRequest, short_seq_prob: float) -> Segments:
    """Sequences of sentences that stay inside one document: DOC-SENTENCES."""
    documents, capacity = request.documents, request.single_capacity
    chunks = document_chunks(request, request.target_lengths(capacity, short_seq_prob))
    begin, end = _cut(request, documents.sentence_offsets, chunks, capacity)
    return Segments(begin, end - begin, np.arange(len(begin) + 1), _NO_LABELS)


def full_sentences(request: ExampleRequest, short_seq_prob: float) -> Segments:
    """Sequences that go on into the next document of `request.documents`, after a separator: FULL-SENTENCES.

    Places are counted with one separator after each document, so that a sequence with separators keeps its limit.
    """
    documents, capacity = request.documents, request.single_capacity
    borders = documents.separated_offsets
    document_begins = borders[documents.document_offsets]  # (num_documents + 1,) the last is the end
    section_begins = document_begins[request.section_offsets]
    chunks = find_chunks(
        request,
        borders,
        request.target_lengths(capacity, short_seq_prob),
        section=(section_begins[request.section], section_begins[request.section + 1]),
        bounds=(0, int(document_begins[-1])),
    )
    begin, end = _cut(request, borders, chunks, capacity)
    begin += np.isin(begin + 1, document_begins)  # no sequence begins with a separator
    return _split_at_documents(document_begins, begin, end)


def _cut(request: ExampleRequest, borders: Int64Array, chunks: Chunks, capacity: int) -> tuple[Int64Array, Int64Array]:
    """Places [begin, end), each (n,), of at most `capacity` tokens of each chunk."""
    begin, end = borders[chunks.first], borders[chunks.last]
    excess = np.maximum(end - begin - capacity, 0)
    is_single = chunks.last - chunks.first == 1
    begin = begin + np.where(is_single, integers(request.keys, 7, excess + 1), excess * chunks.is_moved_back)
    return begin, np.minimum(end, begin + capacity)


def _split_at_documents(document_begins: Int64Array, begin: Int64Array, end: Int64Array) -> Segments:
    """One segment for each document that the places [begin, end), each (n,), of an example touch."""
    first = np.searchsorted(document_begins, begin, side="right") - 1
    num_segments = np.searchsorted(document_begins, end, side="left") - first
    document = ragged_ranges(first, num_segments)
    starts = np.maximum(document_begins[document], np.repeat(begin, num_segments))
    ends = np.minimum(document_begins[document + 1] - 1, np.repeat(end, num_segments))
    offsets = np.append(0, np.cumsum(num_segments))
    return Segments(starts - document, ends - starts, offsets, _NO_LABELS)
