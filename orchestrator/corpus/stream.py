"""The whole run as one stream of example numbers; any batch can be built without those before it.

    example number ─► (epoch, position) ─► (window of shards, place in it) ─► (section, ordinal) ─► segments ─► mask

Where entries of the corpus have weights, an example number leads to (entry, number in the entry) first: of each block
of 65,536 numbers every entry has the same share, at places that a permutation chooses. Entries have epochs and windows
of their own, and so have phases.

Each epoch permutes the shards, lays them out in windows of `window_shards`, and permutes the examples inside a window.
Random B segments, and the documents that a sequence goes on into, come from the same window, so a process holds two
windows of each entry and never the corpus. A section is a document, or a shard where sequences cross documents.
Everything is a function of (corpus digest, seed, phase, epoch, example). Step s of a phase uses the phase's examples
[s·B, (s + 1)·B), with a batch size B that may be the phase's own, and rank r of W workers takes the r-th of W parts,
equal up to one example: the sequence of global batches does not depend on the number of workers, on blocks or on
restarts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bert_core.counter_random import derive_key, permutation
from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import ExampleRequest, SegmentLayout, TokenizedDocuments
from bert_core.masking import MaskingConfig
from bert_core.objectives import SegmentConfig, build_packed_batch, build_segments, count_examples
from bert_core.ragged_rows import Int64Array
from orchestrator.corpus.token_store import STORED_NAMES, StoreSplit, TokenStore


@dataclass(frozen=True)
class SplitShards:
    """One split of a token store, as a stream reads it."""

    store: TokenStore
    split: StoreSplit

    def __getstate__(self) -> dict[str, object]:
        """State for pickling: the store and the split, without the lengths."""
        return {"store": self.store, "split": self.split}

    @property
    def fingerprint(self) -> str:
        """The corpus digest and the split; random numbers are derived from it."""
        return f"{self.store.manifest.digest}/{STORED_NAMES[self.split]}"

    @property
    def num_shards(self) -> int:
        return len(self.store.shards(self.split))

    @property
    def entries(self) -> Sequence[int]:
        return [shard.entry for shard in self.store.shards(self.split)]

    def document_lengths(self, shard: int) -> Int64Array:
        """Tokens (num_documents,) of each document of a shard."""
        return self._lengths[shard].astype(np.int64)

    def read_documents(self, shard: int) -> TokenizedDocuments:
        return self.store.read_shard(self.store.shards(self.split)[shard])

    @cached_property
    def _lengths(self) -> Sequence[NDArray[np.integer]]:
        return self.store.document_lengths(self.split)


@lru_cache(maxsize=16)
def epoch_layout(
    key: int, epoch: int, shards: tuple[int, ...], num_examples: tuple[int, ...], window_shards: int
) -> tuple[tuple[tuple[int, ...], ...], Int64Array]:
    """An epoch's windows of shards, and the position at which each begins, (num_windows + 1,)."""
    order = permutation(derive_key(key, "shards", epoch), len(shards)).tolist()
    windows = even_windows([shards[place] for place in order], window_shards)
    by_shard = dict(zip(shards, num_examples, strict=True))
    sizes = [sum(by_shard[shard] for shard in window) for window in windows]
    return windows, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


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
    store: SplitShards = field(compare=False)


@cache
def window_loader(entry: int) -> Callable[[WindowKey], Window]:
    """`load_window` for an entry of the corpus, whose last windows it keeps: those of other entries come in between."""
    return lru_cache(maxsize=2)(load_window)


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


@lru_cache(maxsize=16)
def window_order(key: int, epoch: int, window: int, size: int) -> Int64Array:
    """The order (size,) in which an epoch takes the examples of a window."""
    return permutation(derive_key(key, "window", epoch, window), size)


MIXTURE_BLOCK = 1 << 16
"""Example numbers of a block, in which every entry has the same share."""


@lru_cache(maxsize=4)
def mixed_block(key: int, block: int, counts: tuple[int, ...]) -> Int64Array:
    """Entry of each number of a block, and the number in that entry: (2, M), of `counts` numbers for each entry."""
    order = permutation(derive_key(key, "mixture", block), sum(counts))
    entries = np.repeat(np.arange(len(counts)), counts)[order]
    by_entry = np.argsort(entries, kind="stable")  # in which the numbers of an entry ascend
    ordinals = np.empty_like(entries)
    ordinals[by_entry] = np.concatenate([block * count + np.arange(count) for count in counts])
    return np.stack([entries, ordinals])


@dataclass(frozen=True)
class StreamConfig:
    """Everything but the corpus that decides the batches."""

    seed: int
    phases: tuple[tuple[int, int, int], ...]
    """(max_seq_length, steps, examples of a step) of each part of the run."""
    window_shards: int
    masking: tuple[MaskingConfig, ...]
    """Rules of each phase by which tokens are masked."""
    layout: SegmentLayout
    segments: SegmentConfig = field(default_factory=SegmentConfig)
    token_objective: str = "masked_lm"
    """A name of TOKEN_OBJECTIVES."""
    weights: tuple[tuple[float, ...], ...] = ()
    """Weights of the corpus's entries in each phase; none where all documents are read alike."""

    @property
    def num_steps(self) -> int:
        return sum(steps for _, steps, _ in self.phases)

    def phase_of(self, step: int) -> tuple[int, int]:
        """The phase that a step belongs to, and the phase's first step."""
        first = 0
        for phase, (_, steps, _) in enumerate(self.phases):
            if step < first + steps:
                return phase, first
            first += steps
        raise IndexError(f"step {step} of a run of {self.num_steps} steps")


@dataclass(frozen=True, eq=False)
class ExampleStream:
    """Batches by number. It pickles small: counts of each shard and phase, and the store's manifest."""

    store: SplitShards
    config: StreamConfig
    shard_examples: tuple[Int64Array, ...]
    """Examples (num_shards,) that an epoch takes from each shard, for each phase."""
    shard_documents: Int64Array
    """Number of documents (num_shards,) of each shard."""
    shard_entries: Int64Array
    """Entry (num_shards,) of the corpus that each shard is of; all 0 where they have no weights."""

    @classmethod
    def open(cls, store: SplitShards, config: StreamConfig) -> Self:
        """Number the examples of a store, whose documents' lengths are read for it."""
        counts = np.zeros((len(config.phases), store.num_shards), np.int64)
        num_documents = np.zeros(store.num_shards, np.int64)
        for shard in range(store.num_shards):
            lengths = store.document_lengths(shard)
            num_documents[shard] = len(lengths)
            for phase, (width, *_) in enumerate(config.phases):
                counts[phase, shard] = count_examples(lengths, width, config.layout, config.segments).sum()
        entries = np.array(store.entries) if config.weights else np.zeros(store.num_shards, np.int64)
        return cls(store, config, tuple(counts), num_documents, entries)

    def examples_per_epoch(self, phase: int = 0) -> int:
        """Number of examples with which each token that is read is seen about once; with weights, on average."""
        counts = self.shard_examples[phase]
        weights = np.array(self.config.weights[phase]) if self.config.weights else np.ones(1)
        return int(counts[weights[self.shard_entries] > 0].sum())

    def fewest_window_documents(self) -> int:
        """Smallest number of documents that a window of any epoch may have; entries of weight 0 have none."""
        fewest, weights = [], self.config.weights
        for entry in np.unique(self.shard_entries):
            if weights and not any(of_phase[entry] for of_phase in weights):
                continue  # it is never read
            documents = self.shard_documents[self.shard_entries == entry]
            sizes = [len(window) for window in even_windows(range(len(documents)), self.config.window_shards)]
            fewest.append(int(np.sort(documents)[: min(sizes)].sum()))
        return min(fewest)

    def mixture(self, phase: int) -> tuple[int, ...]:
        """Number of examples of each entry in any block of a phase: its weight times its examples, as a share."""
        weights = np.array(self.config.weights[phase])
        sizes = np.bincount(self.shard_entries, self.shard_examples[phase], len(weights)) * weights
        shares = np.cumsum(sizes) / max(sizes.sum(), 1e-300)
        return tuple(np.diff(np.round(shares * MIXTURE_BLOCK).astype(np.int64), prepend=0).tolist())

    def epoch_after(self, num_steps: int) -> float:
        """Number of epochs that so many steps take, added up over the phases."""
        epochs, left = 0.0, num_steps
        for phase, (_, steps, size) in enumerate(self.config.phases):
            epochs += min(left, steps) * size / self.examples_per_epoch(phase)
            left = max(0, left - steps)
        return epochs

    def batches(self, steps: range, rank: int = 0, num_workers: int = 1) -> Iterator[tuple[int, PackedBatch]]:
        """A rank's parts of the batches of consecutive steps, which are built together.

        Parts differ by one example where the workers do not divide the batch; none come for a rank without examples.
        """
        start = steps.start
        while start < steps.stop:
            phase, first = self.config.phase_of(start)
            _, num_steps, size = self.config.phases[phase]
            part = range(start, min(steps.stop, first + num_steps))
            start = part.stop
            share = range(size * rank // num_workers, size * (rank + 1) // num_workers)
            if share:
                begins = (np.arange(part.start, part.stop) - first) * size
                numbers = (begins[:, None] + np.array(share)).reshape(-1)
                yield from zip(part, self.examples(phase, numbers).split(len(share)), strict=True)

    def examples(self, phase: int, numbers: Int64Array) -> PackedBatch:
        """Examples of a phase as one batch, by their numbers, (n,) ascending from 0.

        Number n is example n mod N of epoch n div N, N being `examples_per_epoch(phase)`. With weights it is so in the
        entry that has it, by the number that it has there.
        """
        key = derive_key(self.config.seed, "phase", self.store.fingerprint, phase)
        if not self.config.weights:
            return self._examples_of_entry(phase, 0, numbers, key)
        blocks, places = np.divmod(numbers, MIXTURE_BLOCK)
        counts = self.mixture(phase)
        mixed = [mixed_block(key, int(block), counts)[:, places[blocks == block]] for block in np.unique(blocks)]
        entries, ordinals = np.concatenate(mixed, axis=1)
        parts = [
            self._examples_of_entry(phase, int(entry), ordinals[entries == entry], derive_key(key, "entry", int(entry)))
            for entry in np.unique(entries)
        ]
        return PackedBatch.concatenate(parts).take(np.argsort(np.argsort(entries, kind="stable")))

    def _examples_of_entry(self, phase: int, entry: int, numbers: Int64Array, key: int) -> PackedBatch:
        """Examples of an entry of the corpus by their numbers in it, (n,) ascending."""
        shards = np.flatnonzero(self.shard_entries == entry)
        num_examples = self.shard_examples[phase][shards]
        epochs, positions = np.divmod(numbers, int(num_examples.sum()))
        parts = []
        for epoch in np.unique(epochs):
            windows, offsets = epoch_layout(
                key, int(epoch), tuple(shards.tolist()), tuple(num_examples.tolist()), self.config.window_shards
            )
            here = positions[epochs == epoch]
            window = np.searchsorted(offsets, here, side="right") - 1
            for number in np.unique(window).tolist():
                own = here[window == number]
                order = window_order(key, int(epoch), number, int(offsets[number + 1] - offsets[number]))
                example = order[own - offsets[number]]
                parts.append(self._build_window(phase, int(epoch), windows[number], example, own, key))
        return PackedBatch.concatenate(parts)

    def _build_window(
        self, phase: int, epoch: int, shards: tuple[int, ...], example: Int64Array, positions: Int64Array, seed: int
    ) -> PackedBatch:
        """Examples of a window by their numbers in it; their masks go by their positions in the epoch."""
        config = self.config
        max_seq_length = config.phases[phase][0]
        key = WindowKey(
            self.store.fingerprint, shards, max_seq_length, config.layout, config.segments, store=self.store
        )
        window = window_loader(int(self.shard_entries[shards[0]]))(key)
        section = np.searchsorted(window.example_offsets, example, side="right") - 1
        request = ExampleRequest(
            window.documents,
            window.section_offsets,
            section,
            example - window.example_offsets[section],
            example=positions,
            max_seq_length=max_seq_length,
            layout=config.layout,
            seed=seed,
            epoch=epoch,
        )
        return build_packed_batch(
            window.documents,
            build_segments(request, config.segments),
            config.masking[phase],
            layout=config.layout,
            seed=seed,
            epoch=epoch,
            example=positions,
            token_objective=config.token_objective,
        )
