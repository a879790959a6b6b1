"""The token store: a corpus tokenized once, as Parquet shards under a manifest.

A shard is one Parquet file with one row per document: `document_id`, `tokens` (uint16, or uint32 for a large
vocabulary) and `sentence_lengths` (int32, in tokens). The manifest is written last; it names every shard with its
counts and SHA-256, so that examples are numbered without reading text and nothing is found by listing a folder.

The documents' lengths lie in a side file of each split, so that a run is numbered without its shards: one little-endian
int32 per document, in the order of the shards. The file is mapped, not read: a billion documents take four gigabytes.
Opening and reading need no Ray.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from itertools import islice
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bert_core.errors import BertCoreError
from bert_core.examples.segments import TokenArray, TokenizedDocuments
from bert_core.ragged_rows import Int64Array
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import CorpusError, OrchestratorError
from orchestrator.base.results import FileCount
from orchestrator.corpus.input_files import InputFile
from orchestrator.specs import TextSource
from orchestrator.storage import (
    digest_file,
    join,
    local_copy,
    open_read,
    read_bytes,
    read_json,
    write_bytes,
    write_chunks,
    write_json,
)
from orchestrator.storage.attempts import refuse_without_mark
from orchestrator.storage.uris import absolute

logger = logging.getLogger(__name__)
STORE_FORMAT = "token-store-1"
MANIFEST = "manifest.json"

StoreSplit = Literal["train", "validation"]
STORED_NAMES: Mapping[StoreSplit, str] = {"train": "train", "validation": "held_out"}
"""Names of the splits in manifests, in files' names and in what random numbers are derived from."""
COUNT_NAMES = ("num_documents", "num_sentences", "num_tokens")
_LENGTHS_DTYPE = np.dtype("<i4")
_SHARDS_AT_ONCE = 1024
_NUM_THREADS = 16
"""Shards that are opened at a time, as an object store answers each one late."""
BUILD_VERSION = 3
"""Version of the shards: a number to raise when the same text gives other shards, so that older stores are not used."""


@dataclass(frozen=True)
class ShardInfo:
    """One shard of a store, as its manifest describes it."""

    file: str
    """Path of the shard, relative to the store's folder."""
    split: StoreSplit
    num_documents: int
    num_sentences: int
    num_tokens: int
    sha256: str
    entry: int = 0
    """Number of the entry of `corpus.files` that it is of, where these have weights; 0 elsewhere."""


@dataclass(frozen=True)
class Manifest:
    """Everything that is known about a store without reading a shard."""

    tokenizer_fingerprint: str
    vocab_size: int
    options: Mapping[str, Any]
    """Options that the store was built with: the source, the share of validation documents, the size of a shard."""
    shards: Sequence[ShardInfo]
    files: Sequence[FileCount] = ()
    lengths: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the side file with the lengths of each split's documents, by the split's name in manifests. Empty in
    stores of versions that wrote none."""

    @cached_property
    def digest(self) -> str:
        """The corpus digest: SHA-256 over the shards' digests in order."""
        lines = (f"{STORED_NAMES[shard.split]} {shard.sha256}\n" for shard in self.shards)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the content and the tokenizer; where the files lie does not matter."""
        return hashlib.sha256(f"{STORE_FORMAT} {self.tokenizer_fingerprint} {self.digest}".encode()).hexdigest()

    @cached_property
    def by_split(self) -> Mapping[StoreSplit, tuple[ShardInfo, ...]]:
        """The shards of each split, in the order of the corpus."""
        return {split: tuple(shard for shard in self.shards if shard.split == split) for split in STORED_NAMES}

    def counts(self, split: StoreSplit | None = None) -> dict[str, int]:
        """Numbers of documents, sentences and tokens of a split, or of both."""
        shards = self.shards if split is None else self.by_split[split]
        return {name: sum(getattr(shard, name) for shard in shards) for name in COUNT_NAMES}

    def save(self, folder: str) -> None:
        """Write the manifest, which makes the store complete."""
        shards = [asdict(shard) | {"split": STORED_NAMES[shard.split]} for shard in self.shards]
        added = {"shards": shards, "format": STORE_FORMAT, "digest": self.digest, "counts": self.counts()}
        write_json(join(folder, MANIFEST), asdict(self) | added)

    @classmethod
    def load(cls, folder: str) -> Self:
        """Read and check a manifest. Raises: CorpusError when it is missing, cut short or contradicts itself."""
        path = join(folder, MANIFEST)
        splits = {name: split for split, name in STORED_NAMES.items()}
        try:
            value = read_json(path)
            found = [value.pop(name) for name in ("format", "digest", "counts")]
            value["shards"] = tuple(ShardInfo(**{**one, "split": splits[one["split"]]}) for one in value["shards"])
            value["files"] = tuple(FileCount(**file) for file in value["files"])
            manifest = cls(**value)
        except FileNotFoundError:
            raise CorpusError(f"{folder} is no token store: it has no {MANIFEST}; build the corpus again") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorpusError(f"{path} cannot be read: {error}; delete the folder and build the corpus again") from None
        if found != [STORE_FORMAT, manifest.digest, manifest.counts()]:
            raise CorpusError(
                f"{path} contradicts itself or is not of {STORE_FORMAT}: it was changed or damaged; "
                "build the corpus again"
            )
        return manifest


def lengths_file(split: StoreSplit) -> str:
    """Name of the side file of a split."""
    return f"lengths-{STORED_NAMES[split]}.bin"


@dataclass(frozen=True)
class TokenStore:
    """An opened store; it is small and can be pickled."""

    folder: str
    manifest: Manifest

    @classmethod
    def open(cls, folder: str) -> Self:
        """Open a store by its manifest. Raises: CorpusError when the store is not complete."""
        return cls(folder, Manifest.load(folder))

    def shards(self, split: StoreSplit) -> tuple[ShardInfo, ...]:
        """The shards of a split, in the order of the corpus."""
        return self.manifest.by_split[split]

    def document_lengths(self, split: StoreSplit) -> Sequence[NDArray[np.integer]]:
        """Lengths of the documents of each shard: mapped from the side file, or read from the shards."""
        digest = self.manifest.lengths.get(STORED_NAMES[split])
        if digest is None:
            return list(self._read_lengths(split))
        path = join(self.folder, lengths_file(split))
        with suppress(OSError, OrchestratorError, BertCoreError):
            copy = local_copy(path)
            if digest_file(str(copy)) == digest:
                ends = np.cumsum([shard.num_documents for shard in self.shards(split)])
                return np.split(np.asarray(np.memmap(copy, _LENGTHS_DTYPE, "r")), ends[:-1])
        logger.warning(f"{path} is missing or damaged: document lengths are read from the shards, which takes longer")
        return list(self._read_lengths(split))

    def write_lengths(self) -> Self:
        """Write the side files of all splits; returns the store with a manifest that names them and is not saved."""
        digests = {}
        for split in (split for split, shards in self.manifest.by_split.items() if shards):
            chunks = (lengths.astype(_LENGTHS_DTYPE).tobytes() for lengths in self._read_lengths(split))
            digests[STORED_NAMES[split]] = write_chunks(join(self.folder, lengths_file(split)), chunks)
        return replace(self, manifest=replace(self.manifest, lengths=digests))

    def _read_lengths(self, split: StoreSplit) -> Iterator[Int64Array]:
        """Yield the lengths of each shard's documents, in order; several shards are read at a time."""
        shards = iter(self.shards(split))
        with ThreadPoolExecutor(_NUM_THREADS) as threads:
            while some := list(islice(shards, _SHARDS_AT_ONCE)):
                yield from threads.map(self.read_document_lengths, some)

    def read_shard(self, shard: ShardInfo) -> TokenizedDocuments:
        """Documents of a shard, checked against its digest.

        Raises: CorpusError when it is missing, cut or altered; ClusterError on a host that does not see the store.
        """
        path = join(self.folder, shard.file)
        try:
            data = read_bytes(path)
        except OSError as error:
            raise self._unreadable(path, error) from None
        if hashlib.sha256(data).hexdigest() != shard.sha256:
            raise self._altered(path)
        table = pq.read_table(pa.BufferReader(data), columns=["tokens", "sentence_lengths"], use_threads=False)
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

    def _altered(self, path: str) -> CorpusError:
        return CorpusError(
            f"{path} is not what the manifest of its token store says: it was cut short or altered; "
            f"delete {self.folder} and build the corpus again"
        )

    def _unreadable(self, path: str, error: Exception) -> CorpusError:
        """Make the error for a file. Raises: ClusterError instead where this host does not see the store at all."""
        with suppress(OSError):
            refuse_without_mark(join(self.folder, MANIFEST))
        return CorpusError(
            f"{path} of the token store cannot be read: {error}; delete {self.folder} and build the corpus again"
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
    return pa.ListArray.from_arrays(pa.array(np.cumsum([0, *lengths], dtype=np.int32)), pa.array(values))


def store_options(
    source: TextSource, tokenizer: Tokenizer, validation_fraction: float, shard_bytes: int
) -> dict[str, Any]:
    """Everything that is asked of a store, as its manifest keeps it. Whatever the weights, the store is the same."""
    return {
        "corpus": source.identity_values() | ({"weights": True} if source.weights else {}),
        "tokenizer": tokenizer.fingerprint,
        "validation_fraction": validation_fraction,
        "shard_bytes": shard_bytes,
        "sentencex": version("sentencex"),
    }


def store_folder(storage: str, options: dict[str, Any], files: Sequence[InputFile]) -> str:
    """Folder STORAGE/corpora/KEY of a store; KEY is a hash of its options and of each file's path, size and version."""
    seen = [[file.path, file.num_bytes, file.version] for file in files]
    key = {"options": options, "files": seen, "format": STORE_FORMAT, "build": BUILD_VERSION}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return join(absolute(storage), "corpora", digest)
