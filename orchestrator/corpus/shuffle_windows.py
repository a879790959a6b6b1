"""Windows of shards: the shards whose examples are shuffled together.

Random segments and next documents come from the same window. An epoch permutes the shards and lays them out in
windows; a process holds one or two windows and never the corpus.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np

from bert_core.counter_random import derive_key, permutation
from bert_core.examples.segments import TokenizedDocuments
from bert_core.objectives.packed_batches import SegmentConfig, count_examples
from bert_core.ragged_rows import Int64Array
from bert_core.text.segment_layout import SegmentLayout


class ShardReader(Protocol):
    """The part of a token store that a stream reads; cheap to pickle."""

    @property
    def fingerprint(self) -> str:
        """Digest of the documents; random numbers are derived from it."""

    @property
    def num_shards(self) -> int:
        """Number of shards."""

    def document_lengths(self, shard: int) -> Int64Array:
        """Tokens (num_documents,) of each document of a shard."""

    def read_documents(self, shard: int) -> TokenizedDocuments:
        """Read a shard's documents."""


@dataclass(frozen=True)
class EpochLayout:
    """An epoch's windows of shards, and the position at which each begins."""

    windows: tuple[tuple[int, ...], ...]
    offsets: Int64Array  # (num_windows + 1,)


@lru_cache(maxsize=4)
def epoch_layout(key: int, epoch: int, shard_examples: tuple[int, ...], window_shards: int) -> EpochLayout:
    """The windows of an epoch, given the number of examples of each shard."""
    order = permutation(derive_key(key, "shards", epoch), len(shard_examples)).tolist()
    windows = even_windows(order, window_shards)
    sizes = [sum(shard_examples[shard] for shard in window) for window in windows]
    return EpochLayout(windows, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]))


def even_windows(order: Sequence[int], window_shards: int) -> tuple[tuple[int, ...], ...]:
    """Cut shards into windows of at most `window_shards`, of sizes that differ by one at most.

    So no window has to draw its random segments from a single shard while its neighbors have many.

    >>> even_windows([3, 1, 0, 2, 4], 3)
    ((3, 1, 0), (2, 4))
    """
    num_windows = -(-len(order) // window_shards)
    return tuple(tuple(part.tolist()) for part in np.array_split(np.asarray(order), num_windows))


@dataclass(frozen=True)
class Window:
    """The documents of a window of shards, and the numbers of the examples of each section."""

    documents: TokenizedDocuments
    section_offsets: Int64Array  # (num_sections + 1,) into documents
    example_offsets: Int64Array  # (num_sections + 1,) the section's first example


@dataclass(frozen=True)
class WindowKey:
    """Key that tells windows apart. The store, which is unpickled anew in every task, is not compared."""

    fingerprint: str
    shards: tuple[int, ...]
    max_seq_length: int
    layout: SegmentLayout
    segments: SegmentConfig
    store: ShardReader = field(compare=False)


@lru_cache(maxsize=2)
def load_window(key: WindowKey) -> Window:
    """Read a window's shards and number their examples."""
    shards = [key.store.read_documents(shard) for shard in key.shards]
    counts = [
        count_examples(np.diff(shard.document_ends), key.max_seq_length, key.layout, key.segments) for shard in shards
    ]
    sizes = [shard.num_documents if key.segments.cross_documents else 1 for shard in shards]
    sections = np.repeat(sizes, [len(count) for count in counts])  # documents of each section
    offsets = (np.append(0, np.cumsum(values)) for values in (sections, np.concatenate(counts)))
    return Window(TokenizedDocuments.concatenate(shards), *offsets)


@lru_cache(maxsize=4)
def window_order(key: int, epoch: int, window: int, size: int) -> Int64Array:
    """The order (size,) in which an epoch takes the examples of a window."""
    return permutation(derive_key(key, "window", epoch, window), size)
