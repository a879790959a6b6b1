"""Numbered examples become stretches of consecutive sentences, each without its predecessors.

The original script (Devlin et al. 2019, appendix A.2) walks through each document in order. Here an example can be made
alone, and the number of examples is known beforehand: it starts at a random sentence in its own n-th of its section,
drawn anew each epoch, and is filled from there up to the sequence length, now and then to a shorter one. A section is a
document, or the part of a corpus that examples are numbered in where they run on from one document into the next.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bert_core.counter_random import derive_key, integers, random_bits, uniform
from bert_core.examples.segments import TokenizedDocuments
from bert_core.ragged_rows import Int64Array
from bert_core.text.segment_layout import NUM_SINGLE_SPECIALS, SegmentLayout


@dataclass(frozen=True)
class Numbered:
    """n examples to cut. Row r of what is made of them is a function of the documents, the seed, the epoch and its own
    numbers alone."""

    documents: TokenizedDocuments
    section_offsets: Int64Array  # (num_sections + 1,) into documents
    section: Int64Array  # (n,) which section each example is cut from
    ordinal: Int64Array  # (n,) which of that section's examples it is
    example: Int64Array  # (n,) numbers that tell the examples of an epoch apart
    max_seq_length: int
    layout: SegmentLayout
    seed: int
    epoch: int

    @property
    def pair_capacity(self) -> int:
        """Tokens of both segments of a pair at most."""
        return self.max_seq_length - self.layout.num_pair_specials

    @property
    def single_capacity(self) -> int:
        """Tokens of a sequence without pairs at most."""
        return self.max_seq_length - NUM_SINGLE_SPECIALS

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """Of each example's random numbers: (n,). Counters 0 to 2 are used here."""
        return random_bits(derive_key(self.seed, "segments", self.epoch), self.example)

    def targets(self, capacity: int, short_seq_prob: float) -> Int64Array:
        """How many tokens (n,) each example is filled to: the capacity, or a random number from 2 on."""
        targets = np.full(len(self.example), capacity)
        short = uniform(self.keys, 0) < short_seq_prob
        targets[short] = 2 + integers(self.keys[short], 1, capacity - 1)
        return targets


@dataclass(frozen=True)
class Stretches:
    """n stretches of sentences."""

    first: Int64Array  # (n,)
    last: Int64Array  # (n,) the sentence after the last
    is_held: NDArray[np.bool_]  # (n,) whether it was moved back to end where it may at most


def count_stretches(lengths: Int64Array, pair_capacity: int) -> Int64Array:
    """Examples an epoch takes from sections of so many tokens: as many as make each token seen about once.

    Pairs decide, also where there are none, so that sentence objectives that are compared have equal epochs.
    """
    return np.maximum(1, (2 * lengths + pair_capacity) // (2 * pair_capacity))


def document_stretches(numbered: Numbered, targets: Int64Array) -> Stretches:
    """Sentences that reach `targets` tokens or the end of their document, where each document is a section."""
    document_ends, document = numbered.documents.document_ends, numbered.section
    section = document_ends[document], document_ends[document + 1]
    return stretches(numbered, numbered.documents.sentence_offsets, targets, section, section)


def stretches(
    numbered: Numbered,
    borders: Int64Array,
    targets: Int64Array,
    section: tuple[Int64Array, Int64Array],
    bounds: tuple[Int64Array, Int64Array] | tuple[int, int],
) -> Stretches:
    """Sentences that reach `targets` places, and less than a sentence more.

    `borders` says where sentences begin, and the last one ends; `section` where each example's section does; `bounds`
    what a stretch stays inside. The start falls into the example's own n-th of its section, shifted back by half a
    stretch so that beginnings are seen as often as middles. One that leaves too little up to the upper bound is moved
    back, and the stretch then goes up to that bound, so that ends are seen as well and stretches come out full.
    """
    (begin, end), (low, high) = section, bounds
    count = count_stretches(end - begin, numbered.pair_capacity)
    share = (numbered.ordinal + uniform(numbered.keys, 2)) * ((end - begin) / count)
    start = begin + (share - targets / 2).astype(np.int64)
    latest = np.maximum(high - targets, low)
    first = np.searchsorted(borders, np.clip(start, low, latest), side="right") - 1
    is_held = start > latest
    goal = np.where(is_held, high, np.minimum(borders[first] + targets, high))
    return Stretches(first, np.searchsorted(borders, goal, side="left"), is_held)


def reach(documents: TokenizedDocuments, first: Int64Array, num_tokens: Int64Array, document: Int64Array) -> Int64Array:
    """The first sentence border at least `num_tokens` (and one sentence) after `first`, at most the document's end."""
    goal = documents.sentence_offsets[first] + np.maximum(num_tokens, 1)
    border = np.searchsorted(documents.sentence_offsets, goal, side="left")
    return np.minimum(border, documents.document_offsets[document + 1])
