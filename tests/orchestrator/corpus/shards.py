"""What tests look up in a shard's file."""

import hashlib
from collections.abc import Iterable
from typing import Any

import pyarrow.parquet

from bert_core.examples.packing import PackedBatch
from orchestrator.corpus.token_store import ShardInfo, TokenStore


def document_ids(store: TokenStore, shard: ShardInfo) -> list[Any]:
    """The ids of a shard's documents, in order."""
    return list(pyarrow.parquet.read_table(f"{store.folder}/{shard.file}")["document_id"].to_pylist())


def digests(batches: Iterable[tuple[int, PackedBatch]]) -> list[str]:
    """One digest for each batch, over all its arrays."""
    names = PackedBatch.__dataclass_fields__
    return [
        hashlib.sha256(b"".join(getattr(batch, name).tobytes() for name in names)).hexdigest() for _, batch in batches
    ]
