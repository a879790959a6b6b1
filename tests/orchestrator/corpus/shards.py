"""What tests look up in a shard's file."""

from typing import Any

import pyarrow.parquet

from orchestrator.corpus.token_store import ShardInfo, TokenStore


def document_ids(store: TokenStore, shard: ShardInfo) -> list[Any]:
    """The ids of a shard's documents, in order."""
    return list(pyarrow.parquet.read_table(f"{store.folder}/{shard.file}")["document_id"].to_pylist())
