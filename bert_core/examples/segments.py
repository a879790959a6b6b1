"""Segments of tokenized documents: chunks of sentences, one for each requested example, and how examples are laid out.

The original script (Devlin et al. 2019, appendix A.2) walks through each document in order. Here an example can be made
alone, and the number of examples is known beforehand. A section of t tokens is divided into as many equal parts as it
gives examples. Example i starts at a random sentence in the i-th part, drawn anew each epoch, and takes the sentences
from there up to the sequence length, or sometimes to a shorter length. A section is a document; where sequences cross
the borders of documents, it is the part of a corpus whose examples are numbered together.

A single sequence, without a sentence objective, is DOC-SENTENCES or FULL-SENTENCES (Liu et al. 2019, section 4.2). It
is full: a chunk that is longer loses tokens at its end, or at its front where it was moved back to end at the last
token. A single sentence that is too long gives a random part of itself. So every token can be seen.

Shapes: n examples, K segments, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bert_core.counter_random import derive_key, integers, random_bits, uniform
from bert_core.ragged_rows import Int64Array, ragged_ranges

NUM_SINGLE_SPECIALS = 2
"""Special tokens of a single segment: [CLS] A [SEP]."""


@dataclass(frozen=True)
class SegmentLayout:
    """Ids of special tokens: `prefix` A `suffix` for one segment, `prefix` A `between` B `suffix` for a pair.

    `[CLS] A [SEP] B [SEP]` (Devlin et al. 2019, figure 2), or RoBERTa's `<s> A </s></s> B </s>`.
    """

    prefix: int
    between: tuple[int, ...]
    suffix: int
    """Id that ends the last segment; it also separates documents in a sequence of several."""
    type_of_second: int
    """Token type of B and of the suffix after it, 0 where a model has one type only; all before them have type 0."""

    @property
    def num_pair_specials(self) -> int:
        return NUM_SINGLE_SPECIALS + len(self.between)


TokenArray = NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True)
class TokenizedDocuments:
    """Documents laid end to end. No sentence and no document is empty.

    Sentence s is tokens[sentence_offsets[s] : sentence_offsets[s + 1]]; document d is the sentences from
    document_offsets[d] up to document_offsets[d + 1].
    """

    tokens: TokenArray  # (num_tokens,)
    sentence_offsets: Int64Array  # (num_sentences + 1,) into tokens
    document_offsets: Int64Array  # (num_documents + 1,) into sentences

    @property
    def num_documents(self) -> int:
        return len(self.document_offsets) - 1

    @cached_property
    def document_ends(self) -> Int64Array:
        """Tokens (num_documents + 1,) at which each document begins, and the last one ends."""
        return self.sentence_offsets[self.document_offsets]

    @cached_property
    def separated_offsets(self) -> Int64Array:
        """`sentence_offsets` (num_sentences + 1,) as if each document ended with one more token, a separator."""
        num_separators = np.repeat(np.arange(self.num_documents + 1), np.append(np.diff(self.document_offsets), 1))
        return self.sentence_offsets + num_separators

    @staticmethod
    def concatenate(parts: Sequence["TokenizedDocuments"]) -> "TokenizedDocuments":
        sentences, documents = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
        for part in parts:
            sentences.append(part.sentence_offsets[1:] + sentences[-1][-1])
            documents.append(part.document_offsets[1:] + documents[-1][-1])
        tokens = np.concatenate([part.tokens for part in parts])
        return TokenizedDocuments(tokens, np.concatenate(sentences), np.concatenate(documents))


@dataclass(frozen=True)
class Segments:
    """The K segments of n examples, as ranges of the documents' tokens."""

    starts: Int64Array  # (K,)
    lengths: Int64Array  # (K,)
    example_offsets: Int64Array  # (n + 1,) into segments
    sentence_labels: NDArray[np.int8]
    """(n,) the label of each pair, 0 or 1, as its objective defines it; (0,) where examples are single sequences"""

    @property
    def is_pairs(self) -> bool:
        return len(self.sentence_labels) > 0


@dataclass(frozen=True)
class ExampleRequest:
    """A request for n examples.

    Example r is a function of the documents, the seed, the epoch and its own three numbers, and of nothing else.
    """

    documents: TokenizedDocuments
    section_offsets: Int64Array  # (num_sections + 1,) into documents
    section: Int64Array  # (n,) the section that each example is cut from
    ordinal: Int64Array  # (n,) the example's number among those of its section
    example: Int64Array  # (n,) numbers that tell the examples of an epoch apart
    max_seq_length: int
    layout: SegmentLayout
    seed: int
    epoch: int

    @property
    def pair_capacity(self) -> int:
        """Largest number of tokens in a pair of segments, special tokens left out."""
        return self.max_seq_length - self.layout.num_pair_specials

    @property
    def single_capacity(self) -> int:
        """Largest number of tokens in a single sequence, special tokens left out."""
        return self.max_seq_length - NUM_SINGLE_SPECIALS

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """Key (n,) of each example's random numbers. Counters 0, 1 and 2 of a key belong to this file."""
        return random_bits(derive_key(self.seed, "segments", self.epoch), self.example)

    def target_lengths(self, capacity: int, short_seq_prob: float) -> Int64Array:
        """Tokens (n,) that each example is filled up to: `capacity`, or for some a random number from 2 to it."""
        targets = np.full(len(self.example), capacity)
        is_short = uniform(self.keys, 0) < short_seq_prob
        targets[is_short] = 2 + integers(self.keys[is_short], 1, capacity - 1)
        return targets


@dataclass(frozen=True)
class Chunks:
    """Sentences [first, last) of n chunks."""

    first: Int64Array  # (n,)
    last: Int64Array  # (n,) the sentence after the chunk's last one
    is_moved_back: NDArray[np.bool_]  # (n,) whether the chunk was moved back so that it ends at its upper bound


def count_chunks(lengths: Int64Array, pair_capacity: int) -> Int64Array:
    """Examples that an epoch takes from sections of so many tokens, so that each token is seen about once: (n,) → (n,).

    The capacity of a pair is used for single sequences too: so runs that compare sentence objectives have equal epochs.
    """
    return np.maximum(1, (2 * lengths + pair_capacity) // (2 * pair_capacity))


def document_chunks(request: ExampleRequest, targets: Int64Array) -> Chunks:
    """Chunks of at least `targets` (n,) tokens, or up to the document's end, where each document is a section."""
    document_ends, document = request.documents.document_ends, request.section
    section = document_ends[document], document_ends[document + 1]
    return find_chunks(request, request.documents.sentence_offsets, targets, section, section)


def find_chunks(
    request: ExampleRequest,
    offsets: Int64Array,
    targets: Int64Array,
    section: tuple[Int64Array, Int64Array],
    bounds: tuple[Int64Array, Int64Array] | tuple[int, int],
) -> Chunks:
    """Chunks of at least `targets` (n,) tokens, and at most one sentence more.

    A chunk's start is shifted back by half its length, so that the beginning of a document is seen as often as its
    middle. A chunk that starts too close to the upper bound is moved back and ends at that bound, so that the end of a
    document is seen as well and chunks are long enough.

    Args:
        offsets: (num_sentences + 1,) where each sentence begins, and where the last one ends.
        section: where each example's section begins and ends, (n,) each.
        bounds: the lower and the upper bound that a chunk stays inside, (n,) each or one for all.
    """
    (begin, end), (low, high) = section, bounds
    count = count_chunks(end - begin, request.pair_capacity)
    share = (request.ordinal + uniform(request.keys, 2)) * ((end - begin) / count)
    start = begin + (share - targets / 2).astype(np.int64)
    latest = np.maximum(high - targets, low)
    first = np.searchsorted(offsets, np.clip(start, low, latest), side="right") - 1
    is_moved_back = start > latest
    goal = np.where(is_moved_back, high, np.minimum(offsets[first] + targets, high))
    return Chunks(first, np.searchsorted(offsets, goal, side="left"), is_moved_back)


def sentence_after(
    documents: TokenizedDocuments, first: Int64Array, num_tokens: Int64Array, document: Int64Array
) -> Int64Array:
    """The sentence (n,) that begins at least `num_tokens`, and one sentence, after the sentence `first` (n,) begins.

    It is at most the sentence after the last one of `document` (n,).
    """
    goal = documents.sentence_offsets[first] + np.maximum(num_tokens, 1)
    border = np.searchsorted(documents.sentence_offsets, goal, side="left")
    return np.minimum(border, documents.document_offsets[document + 1])


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
    offsets = documents.separated_offsets
    document_begins = offsets[documents.document_offsets]  # (num_documents + 1,) the last is the end
    section_begins = document_begins[request.section_offsets]
    chunks = find_chunks(
        request,
        offsets,
        request.target_lengths(capacity, short_seq_prob),
        section=(section_begins[request.section], section_begins[request.section + 1]),
        bounds=(0, int(document_begins[-1])),
    )
    begin, end = _cut(request, offsets, chunks, capacity)
    begin += np.isin(begin + 1, document_begins)  # no sequence begins with a separator
    return _split_at_documents(document_begins, begin, end)


def _cut(request: ExampleRequest, offsets: Int64Array, chunks: Chunks, capacity: int) -> tuple[Int64Array, Int64Array]:
    """Places [begin, end), each (n,), of at most `capacity` tokens of each chunk."""
    begin, end = offsets[chunks.first], offsets[chunks.last]
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


@dataclass(frozen=True)
class LaidOut:
    """Examples laid end to end with their special tokens."""

    input_ids: NDArray[np.int32]  # (T,)
    token_type_ids: NDArray[np.int8]  # (T,)
    cu_seqlens: NDArray[np.int32]  # (n + 1,)
    is_special: NDArray[np.bool_]  # (T,)


def lay_out(documents: TokenizedDocuments, segments: Segments, layout: SegmentLayout) -> LaidOut:
    """Lay the segments of examples end to end, as pairs or, with a suffix behind each segment, as single sequences."""
    last = segments.example_offsets[1:] - 1  # (n,) each example's last segment
    after = np.full(len(segments.lengths), len(layout.between) if segments.is_pairs else 1)  # (K,)
    after[last] = 1
    closed = np.append(0, np.cumsum(segments.lengths + after))  # (K + 1,) where a segment begins, without prefixes
    num_before = np.arange(len(segments.example_offsets))
    cu_seqlens = closed[segments.example_offsets] + num_before
    begins = closed[:-1] + np.repeat(num_before[1:], np.diff(segments.example_offsets))
    ends = begins + segments.lengths

    input_ids = np.empty(cu_seqlens[-1], np.int32)
    tokens = documents.tokens[ragged_ranges(segments.starts, segments.lengths)]
    input_ids[ragged_ranges(begins, segments.lengths)] = tokens
    is_special = np.zeros(len(input_ids), bool)
    token_type_ids = np.zeros(len(input_ids), np.int8)
    specials = [(cu_seqlens[:-1], layout.prefix), (ends[last] if segments.is_pairs else ends, layout.suffix)]
    if segments.is_pairs:
        specials += [(ends[::2] + place, token_id) for place, token_id in enumerate(layout.between)]
        second = segments.lengths[1::2] + 1
        token_type_ids[ragged_ranges(cu_seqlens[1:] - second, second)] = layout.type_of_second
    for places, token_id in specials:
        input_ids[places] = token_id
        is_special[places] = True
    return LaidOut(input_ids, token_type_ids, cu_seqlens.astype(np.int32), is_special)


Ranges = tuple[Int64Array, Int64Array]
"""Starts (n,) and lengths (n,), in tokens."""


def fit_pairs(keys: NDArray[np.uint64], capacity: int, a: Ranges, b: Ranges, labels: NDArray[np.bool_]) -> Segments:
    """Cut the segments A and B of each pair until both together have at most `capacity` tokens.

    The longer segment loses tokens, at the front or at the back (Devlin et al. 2019, appendix A.2). The original script
    throws a coin for each token; here a uniform share of the tokens to cut is cut at the front.

    Counters 7 and 8 of the keys (n,) decide where a segment is cut.
    """
    (a_starts, a_lengths), (b_starts, b_lengths) = a, b
    a_kept, b_kept = truncated_lengths(a_lengths, b_lengths, capacity)
    a_starts = a_starts + integers(keys, 7, a_lengths - a_kept + 1)
    b_starts = b_starts + integers(keys, 8, b_lengths - b_kept + 1)
    starts, lengths = (np.stack(both, axis=1).reshape(-1) for both in ((a_starts, b_starts), (a_kept, b_kept)))
    return Segments(starts, lengths, np.arange(0, len(starts) + 1, 2), labels.astype(np.int8))


def truncated_lengths(a: Int64Array, b: Int64Array, capacity: int) -> tuple[Int64Array, Int64Array]:
    """Lengths (n,) of A and B after the longer one (B where they are equal) was cut token by token until both fit."""
    half = (capacity + 1) // 2
    a_kept = np.where(a + b <= capacity, a, np.minimum(a, np.maximum(half, capacity - b)))
    return a_kept, np.minimum(b, capacity - a_kept)
