"""Kinds of indexes by name, and their folders: index.json, ids.json, the vectors, manifest.json."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bert_core.checkpoints.atomic_files import atomic_folder
from bert_core.checkpoints.manifest import check_manifest, write_json, write_manifest
from bert_core.errors import CheckpointError, ConfigError
from bert_core.vector_index.exact import ExactIndex
from bert_core.vector_index.hnsw import HnswIndex
from bert_core.vector_index.index import METRICS, VectorIndex, check_ids, prepare_vectors

INDEX_KINDS: dict[str, type[VectorIndex]] = {index.kind: index for index in (ExactIndex, HnswIndex)}

_INDEX_FILE = "index.json"
_IDS_FILE = "ids.json"


def build_index(
    ids: Sequence[str], vectors: NDArray[np.floating], metric: str = "cosine", kind: str = "exact"
) -> VectorIndex:
    """Build an index of vectors (N, H) with an id for each.

    Args:
        metric: "cosine" or "dot".
        kind: "exact", or "hnsw" for approximate search, which the extra `search` brings.

    Raises: ConfigError for an unknown metric or kind or a missing library, DataError for ids or vectors that break
        the contract.
    """
    for name, value, known in (("metric", metric, METRICS), ("kind", kind, tuple(INDEX_KINDS))):
        if value not in known:
            raise ConfigError(f"{name} {value!r} is not known; use one of {', '.join(known)}")
    prepared = prepare_vectors(vectors, metric, "vectors")
    check_ids(ids, len(prepared))
    return INDEX_KINDS[kind].build(ids, metric, prepared)


def save_index(index: VectorIndex, folder: str | Path) -> None:
    """Write an index's folder, whole or not at all; an older one is replaced."""
    with atomic_folder(Path(folder)) as target:
        write_json(target / _INDEX_FILE, {"kind": index.kind, "metric": index.metric})
        write_json(target / _IDS_FILE, list(index.ids))
        index.write(target / index.file_name)
        write_manifest(target, [_INDEX_FILE, _IDS_FILE, index.file_name])


def load_index(folder: str | Path) -> VectorIndex:
    """Load the index of a folder. Raises: CheckpointError, naming the file, or ConfigError for a missing library."""
    folder = Path(folder)
    check_manifest(folder, "build the index anew")
    try:
        values = json.loads((folder / _INDEX_FILE).read_bytes())
        ids = json.loads((folder / _IDS_FILE).read_bytes())
        kind, metric = INDEX_KINDS[values["kind"]], values["metric"]
    except (OSError, ValueError, KeyError, TypeError):
        raise CheckpointError(f"{folder} holds no index that can be read here; build the index anew") from None
    return kind.read(ids, metric, folder / kind.file_name)
