"""Windows of shards: what is shuffled together, and lends one another random segments and next documents.

An epoch permutes the shards and lays them out in windows; a process holds one or two windows and never the corpus.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np

from bert_core.counter_random import derive_key, permutation
from bert_core.examples.segments import TokenizedDocuments
from bert_core.examples.sentence_objectives import SegmentConfig, count_examples
from bert_core.ragged_rows import Int64Array
from bert_core.text.segment_layout import SegmentLayout


class ShardReader(Protocol):
    """What the stream needs of a token store; cheap to pickle."""

    @property
    def fingerprint(self) -> str:
        """The corpus digest."""

    @property
    def num_shards(self) -> int:
        """Shards that can be read."""

    def document_lengths(self, shard: int) -> Int64Array:
        """Tokens of each document of a shard."""

    def read_documents(self, shard: int) -> TokenizedDocuments:
        """A shard's documents."""


@dataclass(frozen=True)
class EpochLayout:
    """An epoch's windows of shards, and the position at which each begins."""

    windows: tuple[tuple[int, ...], ...]
    offsets: Int64Array  # (num_windows + 1,)


@lru_cache(maxsize=4)
def epoch_layout(key: int, epoch: int, shard_examples: tuple[int, ...], window_shards: int) -> EpochLayout:
    """The windows of an epoch of shards with so many examples each."""
    order = permutation(derive_key(key, "shards", epoch), len(shard_examples)).tolist()
    windows = even_windows(order, window_shards)
    sizes = [sum(shard_examples[shard] for shard in window) for window in windows]
    return EpochLayout(windows, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]))


def even_windows(order: Sequence[int], window_shards: int) -> tuple[tuple[int, ...], ...]:
    """Windows of at most `window_shards` shards, as even as can be: no window is left with a single shard
    to draw random segments from while its neighbors have many.

    >>> even_windows([3, 1, 0, 2, 4], 3)
    ((3, 1, 0), (2, 4))
    """
    num_windows = -(-len(order) // window_shards)
    return tuple(tuple(part.tolist()) for part in np.array_split(np.asarray(order), num_windows))


@dataclass(frozen=True)
class Window:
    """The documents of a window of shards, and how many examples come from each section of them."""

    documents: TokenizedDocuments
    section_offsets: Int64Array  # (num_sections + 1,) into documents
    example_offsets: Int64Array  # (num_sections + 1,)


@dataclass(frozen=True)
class WindowKey:
    """Which window; the store itself, unpickled anew in every task, takes no part in the comparison."""

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
    sections = np.repeat(sizes, [len(count) for count in counts])  # documents of each
    offsets = (np.append(0, np.cumsum(values)) for values in (sections, np.concatenate(counts)))
    return Window(TokenizedDocuments.concatenate(shards), *offsets)


@lru_cache(maxsize=4)
def window_order(key: int, epoch: int, window: int, size: int) -> Int64Array:
    """The order (size,) in which an epoch takes a window's examples."""
    return permutation(derive_key(key, "window", epoch, window), size)
