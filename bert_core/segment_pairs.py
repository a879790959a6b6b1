"""Sentence pairs for pretraining, cut from tokenised documents for whole arrays of examples at once.

As in BERT (Devlin et al. 2019, section 3.1 and appendix A.2): an example is a stretch of consecutive sentences filled
up to the sequence length, now and then a shorter one; it is split at a sentence border into A and B; half the time B
is thrown away and filled again from a random place of another document; a pair that is too long loses tokens from the
longer segment, at its front or back.

The original script walks through each document in order and takes up again what a random B displaced. Here an example
can be made without its predecessors, and their number is known beforehand: it starts at a random sentence in its own
n-th of the document, drawn anew each epoch, and A is the front or the tail of its stretch where B is random, so that
all places are seen. Of the tokens that are cut, a uniform share is cut at the front, in place of a coin per token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bert_core.counter_random import derive_key, integers, random_bits, uniform
from bert_core.errors import DataError

Int64Array = NDArray[np.int64]
TokenArray = NDArray[np.uint16] | NDArray[np.uint32]

NUM_PAIR_SPECIALS = 3
"""[CLS] A [SEP] B [SEP]"""
NUM_SINGLE_SPECIALS = 2
"""[CLS] A [SEP]"""


@dataclass(frozen=True)
class TokenizedDocuments:
    """Documents laid end to end. Sentence s is tokens[sentence_offsets[s] : sentence_offsets[s + 1]]; document d is
    sentences document_offsets[d] up to document_offsets[d + 1]. No sentence and no document is empty."""

    tokens: TokenArray  # (num_tokens,)
    sentence_offsets: Int64Array  # (num_sentences + 1,) into tokens
    document_offsets: Int64Array  # (num_documents + 1,) into sentences

    @property
    def num_documents(self) -> int:
        """Documents held."""
        return len(self.document_offsets) - 1

    @cached_property
    def document_ends(self) -> Int64Array:
        """Where each document begins, and the last one ends, in tokens: (num_documents + 1,)."""
        return self.sentence_offsets[self.document_offsets]

    @staticmethod
    def concatenate(parts: Sequence["TokenizedDocuments"]) -> "TokenizedDocuments":
        """All parts as one, in order."""
        sentences, documents = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
        for part in parts:
            sentences.append(part.sentence_offsets[1:] + sentences[-1][-1])
            documents.append(part.document_offsets[1:] + documents[-1][-1])
        tokens = np.concatenate([part.tokens for part in parts])
        return TokenizedDocuments(tokens, np.concatenate(sentences), np.concatenate(documents))


@dataclass(frozen=True)
class SegmentPairs:
    """Segments A and B of n examples as ranges of the documents' tokens, and whether B follows A."""

    a_starts: Int64Array  # (n,)
    a_lengths: Int64Array  # (n,)
    b_starts: Int64Array  # (n,)
    b_lengths: Int64Array  # (n,); all 0 when examples are single segments
    next_sentence_labels: NDArray[np.int8]  # (n,) 0 = B follows A, 1 = random; (0,) when examples are single segments

    @property
    def is_pairs(self) -> bool:
        """Whether examples have a B."""
        return len(self.next_sentence_labels) > 0


def count_examples(document_lengths: Int64Array, max_seq_length: int) -> Int64Array:
    """Examples an epoch takes from each document, (num_documents,): as many as make each token seen about once."""
    filled = max_seq_length - NUM_PAIR_SPECIALS
    return np.maximum(1, (2 * document_lengths + filled) // (2 * filled))


def build_segment_pairs(
    documents: TokenizedDocuments,
    document: Int64Array,  # (n,) which document each example is cut from
    ordinal: Int64Array,  # (n,) which of that document's examples it is
    *,
    max_seq_length: int,
    seed: int,
    epoch: int,
    example: Int64Array,  # (n,) numbers that tell the examples of an epoch apart
    pairs: bool = True,
    short_sequence_probability: float = 0.1,
) -> SegmentPairs:
    """The segments of n examples; row r is a function of the documents, its own numbers, the seed and the epoch.

    Raises: DataError when pairs are wanted and there is but one document to draw a random B from.
    """
    if pairs and documents.num_documents < 2:
        raise DataError("next-sentence prediction draws a random B from another document; here is only one document")
    keys = random_bits(derive_key(seed, "segments", epoch), example)
    capacity = max_seq_length - (NUM_PAIR_SPECIALS if pairs else NUM_SINGLE_SPECIALS)

    target = np.full(len(document), capacity)
    short = uniform(keys, 0) < short_sequence_probability
    target[short] = 2 + integers(keys[short], 1, capacity - 1)
    first, last = _chunks(documents, document, ordinal, target, capacity, max_seq_length, uniform(keys, 2))
    offsets = documents.sentence_offsets
    if not pairs:
        lengths = np.minimum(offsets[last] - offsets[first], capacity)
        nothing = np.zeros_like(lengths)
        return SegmentPairs(offsets[first], lengths, nothing, nothing, np.zeros(0, np.int8))

    num_sentences = last - first
    middle = first + 1 + integers(keys, 3, np.maximum(num_sentences - 1, 1))
    is_random = (num_sentences == 1) | (uniform(keys, 4) < 0.5)
    is_tail = is_random & (num_sentences > 1) & (uniform(keys, 9) < 0.5)
    a_first, a_last = np.where(is_tail, middle, first), np.where(is_tail, last, middle)
    a_lengths = offsets[a_last] - offsets[a_first]
    other_first, other_last = _random_chunks(documents, document, target - a_lengths, keys)
    b_first = np.where(is_random, other_first, middle)
    b_last = np.where(is_random, other_last, last)

    b_lengths = offsets[b_last] - offsets[b_first]
    a_kept, b_kept = _truncate(a_lengths, b_lengths, capacity)
    a_starts = offsets[a_first] + integers(keys, 7, a_lengths - a_kept + 1)
    b_starts = offsets[b_first] + integers(keys, 8, b_lengths - b_kept + 1)
    return SegmentPairs(a_starts, a_kept, b_starts, b_kept, is_random.astype(np.int8))


def _chunks(
    documents: TokenizedDocuments,
    document: Int64Array,
    ordinal: Int64Array,
    target: Int64Array,
    capacity: int,
    max_seq_length: int,
    jitter: NDArray[np.float64],
) -> tuple[Int64Array, Int64Array]:
    """Sentences [first, last) that reach `target` tokens or their document's end.

    The start falls into the example's own n-th of the document, shifted back by half a sequence and held inside
    [begin, end − capacity], so that beginnings and ends are seen as often as middles and stretches come out full.
    """
    begin, end = documents.document_ends[document], documents.document_ends[document + 1]
    count = count_examples(end - begin, max_seq_length)
    drawn = (ordinal + jitter) * ((end - begin) / count) - capacity / 2
    start = begin + np.clip(drawn.astype(np.int64), 0, np.maximum(end - begin - capacity, 0))
    first = np.searchsorted(documents.sentence_offsets, start, side="right") - 1
    return first, _reach(documents, first, target, document)


def _reach(
    documents: TokenizedDocuments, first: Int64Array, num_tokens: Int64Array, document: Int64Array
) -> Int64Array:
    """The first sentence border at least `num_tokens` (and one sentence) after `first`, at most the document's end."""
    goal = documents.sentence_offsets[first] + np.maximum(num_tokens, 1)
    border = np.searchsorted(documents.sentence_offsets, goal, side="left")
    return np.minimum(border, documents.document_offsets[document + 1])


def _random_chunks(
    documents: TokenizedDocuments, document: Int64Array, num_tokens: Int64Array, keys: NDArray[np.uint64]
) -> tuple[Int64Array, Int64Array]:
    """For each example, sentences [first, last) from a random place of a random other document."""
    other = integers(keys, 5, documents.num_documents - 1)
    other += other >= document
    begin, end = documents.document_offsets[other], documents.document_offsets[other + 1]
    first = begin + integers(keys, 6, end - begin)
    return first, _reach(documents, first, num_tokens, other)


def _truncate(a: Int64Array, b: Int64Array, capacity: int) -> tuple[Int64Array, Int64Array]:
    """Lengths after cutting the longer of two (B where they are equal) token by token until both fit."""
    half = (capacity + 1) // 2
    a_kept = np.where(a + b <= capacity, a, np.minimum(a, np.maximum(half, capacity - b)))
    return a_kept, np.minimum(b, capacity - a_kept)


def assemble(
    documents: TokenizedDocuments, segments: SegmentPairs, *, cls_id: int, sep_id: int
) -> tuple[NDArray[np.int32], NDArray[np.int8], NDArray[np.int32]]:
    """The examples laid end to end with their special tokens: input_ids, token_type_ids (T,), cu_seqlens (n+1,)."""
    specials = NUM_PAIR_SPECIALS if segments.is_pairs else NUM_SINGLE_SPECIALS
    lengths = segments.a_lengths + segments.b_lengths + specials
    cu_seqlens = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    starts, ends = cu_seqlens[:-1], cu_seqlens[1:]
    input_ids = np.full(cu_seqlens[-1], sep_id, np.int32)
    input_ids[starts] = cls_id
    input_ids[ragged_ranges(starts + 1, segments.a_lengths)] = documents.tokens[
        ragged_ranges(segments.a_starts, segments.a_lengths)
    ]
    token_type_ids = np.zeros(len(input_ids), np.int8)
    if segments.is_pairs:
        b_places = ragged_ranges(starts + 2 + segments.a_lengths, segments.b_lengths)
        input_ids[b_places] = documents.tokens[ragged_ranges(segments.b_starts, segments.b_lengths)]
        token_type_ids[b_places] = 1
        token_type_ids[ends - 1] = 1
    return input_ids, token_type_ids, cu_seqlens.astype(np.int32)


def ragged_ranges(starts: Int64Array, lengths: Int64Array) -> Int64Array:
    """range(starts[0], starts[0] + lengths[0]), then the next one, … as one array.

    >>> ragged_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
