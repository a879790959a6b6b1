"""Segments of tokenized documents, and how examples are laid out from them with their special tokens.

Shapes: n examples, K segments, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bert_core.counter_random import integers
from bert_core.ragged_rows import Int64Array, ragged_ranges
from bert_core.text.segment_layout import SegmentLayout

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
        """All parts as one, in order."""
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
        """Whether examples are pairs of segments."""
        return len(self.sentence_labels) > 0


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
