"""Lengths of a split's documents in one side file of the token store, so that a run is numbered without its shards.

The file holds one little-endian int32 per document, in the order of the shards; how many belong to a shard stands in
the manifest, and so does the file's SHA-256. It is mapped, not read: a billion documents take four gigabytes.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bert_core.errors import BertCoreError
from bert_core.ragged_rows import Int64Array
from orchestrator.storage import digest_file, join, local_copy, write_chunks

logger = logging.getLogger(__name__)
_DTYPE = np.dtype("<i4")
_SHARDS_AT_ONCE = 1024
_NUM_THREADS = 16
"""Shards that are opened at a time, as an object store answers each one late."""

ReadLengths = Callable[[int], Int64Array]
"""A function from a shard's number to the tokens (num_documents,) of its documents."""


def lengths_file(split_name: str) -> str:
    """Name of the side file of a split, by the name that the split has in manifests."""
    return f"lengths-{split_name}.bin"


def write_lengths(folder: str, split_name: str, num_shards: int, read: ReadLengths) -> str:
    """Write the side file of a split; returns its SHA-256."""
    chunks = (lengths.astype(_DTYPE).tobytes() for lengths in read_lengths(num_shards, read))
    return write_chunks(join(folder, lengths_file(split_name)), chunks)


def read_lengths(num_shards: int, read: ReadLengths) -> Iterator[Int64Array]:
    """Yield the lengths of each shard's documents, in order; several shards are read at a time."""
    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        shards = iter(range(num_shards))
        while some := list(islice(shards, _SHARDS_AT_ONCE)):
            yield from threads.map(read, some)


def open_lengths(
    folder: str, split_name: str, digests: Mapping[str, str], num_documents: int
) -> NDArray[np.int32] | None:
    """Map the lengths (num_documents,) of a split; None where a store has no such file, or another than its manifest.

    What is None is read from the shards themselves, which takes longer and gives the same.
    """
    if split_name not in digests or not num_documents:
        return None
    path = join(folder, lengths_file(split_name))
    try:
        copy = local_copy(path)
        if digest_file(str(copy)) == digests[split_name]:
            return np.memmap(copy, _DTYPE, "r", shape=(num_documents,))
        problem = "is not what the manifest says"
    except (OSError, BertCoreError) as error:
        problem = f"cannot be read: {error}"
    logger.warning(f"{path} {problem}; the lengths are read from the shards")
    return None


class DocumentLengths:
    """Lengths of the documents of a split, shard by shard."""

    def __init__(self, flat: Int64Array | NDArray[np.int32], shard_documents: Sequence[int]):
        """Lay a flat array out in rows: `flat` has the lengths, `shard_documents` the number of them in each shard."""
        self._flat = flat
        self._offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(shard_documents, dtype=np.int64)])

    @staticmethod
    def join(rows: Iterable[Int64Array]) -> "DocumentLengths":
        """Lay the lengths of shards end to end."""
        parts = [np.zeros(0, np.int64), *rows]
        return DocumentLengths(np.concatenate(parts), [len(part) for part in parts[1:]])

    def of_shard(self, shard: int) -> Int64Array:
        """Tokens (num_documents,) of each document of a shard."""
        row = self._flat[self._offsets[shard] : self._offsets[shard + 1]]
        return np.asarray(row, np.int64)
