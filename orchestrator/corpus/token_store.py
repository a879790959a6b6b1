"""The token store: a corpus tokenized once, as Parquet shards under a manifest.

A shard is one Parquet file with one row per document: `document_id`, `tokens` (uint16, or uint32 for a large
vocabulary) and `sentence_lengths` (int32, in tokens). The manifest is written last; it names every shard with its
counts and SHA-256, so that examples are numbered without reading text and nothing is found by listing a folder.
Opening and reading need no Ray.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bert_core.examples.segments import TokenArray, TokenizedDocuments
from orchestrator.corpus.document_lengths import DocumentLengths, ReadLengths, open_lengths, read_lengths, write_lengths
from orchestrator.corpus.manifest import MANIFEST, STORED_NAMES, Manifest, ShardInfo, StoreSplit
from orchestrator.errors import CorpusError
from orchestrator.storage import join, open_read, read_bytes, write_bytes
from orchestrator.training.storage_mark import refuse_without_mark


@dataclass(frozen=True)
class TokenStore:
    """An opened store; it is small and can be pickled."""

    folder: str
    manifest: Manifest

    @classmethod
    def open(cls, folder: str) -> Self:
        """Open a store by its manifest. Raises: CorpusError when the store is not complete."""
        return cls(folder, Manifest.load(folder))

    @property
    def digest(self) -> str:
        """Digest of the corpus, a hash over the shards' digests."""
        return self.manifest.digest

    def shards(self, split: StoreSplit) -> tuple[ShardInfo, ...]:
        """The shards of a split, in the order of the corpus."""
        return self.manifest.by_split[split]

    def document_lengths(self, split: StoreSplit) -> DocumentLengths:
        """Lengths of all documents of a split: from the side file, or from the shards where there is none."""
        shards = self.shards(split)
        num_documents = [shard.num_documents for shard in shards]
        flat = open_lengths(self.folder, STORED_NAMES[split], self.manifest.lengths, sum(num_documents))
        if flat is not None:
            return DocumentLengths(flat, num_documents)
        return DocumentLengths.join(read_lengths(len(shards), self._reader(split)))

    def write_lengths(self) -> Self:
        """Write the side files of all splits; returns the store with a manifest that names them and is not saved."""
        digests = {
            STORED_NAMES[split]: write_lengths(self.folder, STORED_NAMES[split], len(shards), self._reader(split))
            for split, shards in self.manifest.by_split.items()
            if shards
        }
        return replace(self, manifest=replace(self.manifest, lengths=digests))

    def _reader(self, split: StoreSplit) -> ReadLengths:
        shards = self.shards(split)
        return lambda shard: self.read_document_lengths(shards[shard])

    def read_shard(self, shard: ShardInfo) -> TokenizedDocuments:
        """Documents of a shard, checked against its digest.

        Raises: CorpusError when it is missing, cut or altered; ClusterError on a host that does not see the store.
        """
        table = pq.read_table(self._source(shard), columns=["tokens", "sentence_lengths"], use_threads=False)
        tokens, _ = _flatten(table["tokens"])
        lengths, document_offsets = _flatten(table["sentence_lengths"])
        sentence_offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=sentence_offsets[1:])
        return TokenizedDocuments(tokens, sentence_offsets, document_offsets)

    def read_document_lengths(self, shard: ShardInfo) -> NDArray[np.int64]:
        """Tokens (num_documents,) of each document of a shard. No tokens are read, and so no digest is checked."""
        path = join(self.folder, shard.file)
        try:
            with open_read(path) as file:
                column = pq.read_table(file, columns=["sentence_lengths"], use_threads=False)["sentence_lengths"]
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(path, error) from None
        lengths, document_offsets = _flatten(column)
        ends: NDArray[np.int64] = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])[document_offsets]
        return np.diff(ends)

    def _source(self, shard: ShardInfo) -> pa.BufferReader:
        path = join(self.folder, shard.file)
        try:
            data = read_bytes(path)
        except OSError as error:
            raise self._unreadable(path, error) from None
        if hashlib.sha256(data).hexdigest() != shard.sha256:
            raise CorpusError(
                f"the shard {path} is not what its manifest says: it was cut short or altered ({len(data)} bytes); "
                f"delete {self.folder} and build the corpus again"
            )
        return pa.BufferReader(data)

    def _unreadable(self, path: str, error: Exception) -> CorpusError:
        """Make the error for a shard. Raises: ClusterError instead where this host does not see the store at all."""
        with suppress(OSError):
            refuse_without_mark(join(self.folder, MANIFEST))
        return CorpusError(
            f"the shard {path} of the token store cannot be read: {error}; "
            f"delete {self.folder} and build the corpus again"
        )


def _flatten(column: pa.ChunkedArray) -> tuple[Any, np.ndarray[Any, np.dtype[np.int64]]]:
    """Values and offsets of a column of lists: (num_values,), (num_rows + 1,)."""
    array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    return array.flatten().to_numpy(), array.offsets.to_numpy().astype(np.int64)


def write_shard(
    folder: str, file: str, split: StoreSplit, ids: Sequence[str], tokens: TokenArray, lengths: Sequence[Sequence[int]]
) -> ShardInfo:
    """Write one shard: document d has the sentence lengths `lengths[d]`, its tokens lie end to end in `tokens`."""
    num_sentences = [len(document) for document in lengths]
    num_tokens = [sum(document) for document in lengths]
    flat = np.fromiter((length for document in lengths for length in document), np.int32, sum(num_sentences))
    table = pa.table(
        {
            "document_id": pa.array(ids, pa.string()),
            "tokens": _list_column(num_tokens, tokens),
            "sentence_lengths": _list_column(num_sentences, flat),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=["document_id"],
        # Token ids have few high bytes: split by byte they are a third smaller, and faster to read.
        column_encoding={"tokens.list.element": "BYTE_STREAM_SPLIT"},
        row_group_size=max(1, len(ids)),
    )
    digest = write_bytes(join(folder, file), memoryview(sink.getvalue()))
    return ShardInfo(file, split, len(ids), len(flat), len(tokens), digest)


def _list_column(lengths: Sequence[int], values: Any) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
