"""The documents that validation examples are drawn from: all that are held out, or some shards of very many."""

from collections.abc import Sequence
from dataclasses import dataclass

from bert_core.counter_random import derive_key, permutation
from bert_core.examples.segments import TokenizedDocuments
from bert_core.ragged_rows import Int64Array
from orchestrator.corpus.shuffle_windows import ShardReader

HELD_OUT_TOKENS = 1 << 26
"""Tokens that are loaded as the one window of an evaluation, about: 128 MB. One hundredth of six billion tokens."""


@dataclass(frozen=True)
class ChosenShards:
    """Some shards of a store, numbered anew."""

    shards: ShardReader
    chosen: Sequence[int]

    @property
    def fingerprint(self) -> str:
        """The store's own, marked, as the same numbers are other shards here."""
        return f"{self.shards.fingerprint}/chosen"

    @property
    def num_shards(self) -> int:
        """Number of shards that were chosen."""
        return len(self.chosen)

    def document_lengths(self, shard: int) -> Int64Array:
        """Tokens (num_documents,) of each document of a shard."""
        return self.shards.document_lengths(self.chosen[shard])

    def read_documents(self, shard: int) -> TokenizedDocuments:
        """Read a shard's documents."""
        return self.shards.read_documents(self.chosen[shard])


def choose_shards(shards: ShardReader, seed: int) -> ShardReader:
    """The shards themselves where they have up to HELD_OUT_TOKENS; else as many as reach that, drawn by the seed."""
    sizes = [int(shards.document_lengths(shard).sum()) for shard in range(shards.num_shards)]
    if sum(sizes) <= HELD_OUT_TOKENS:
        return shards
    chosen, num_tokens = [], 0
    for shard in permutation(derive_key(seed, "held_out", shards.fingerprint), len(sizes)).tolist():
        if num_tokens >= HELD_OUT_TOKENS:
            break
        chosen.append(shard)
        num_tokens += sizes[shard]
    return ChosenShards(shards, tuple(chosen))
