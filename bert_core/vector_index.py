"""Search for the nearest of many vectors: exact, or approximate with the extra `search`. No torch.

The folder of an index: index.json, ids.json, the vectors, manifest.json.

Shapes: N vectors, Q queries, K hits, H hidden.
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bert_core.checkpoints.manifest import atomic_folder, check_manifest, write_json, write_manifest
from bert_core.errors import CheckpointError, ConfigError, DataError

if TYPE_CHECKING:
    import faiss


METRICS = ("cosine", "dot")


class Hit(NamedTuple):
    id: str
    score: float


class VectorIndex(ABC):
    """Index of vectors that do not change, by cosine or dot product; for cosines it holds them scaled to length 1."""

    kind: ClassVar[str]
    file_name: ClassVar[str]
    """Name of the file of the vectors in the index's folder."""

    def __init__(self, ids: Sequence[str], metric: str, dimension: int) -> None:
        self.ids = ids
        self.metric = metric
        self.dimension = dimension

    @classmethod
    @abstractmethod
    def build(cls, ids: Sequence[str], metric: str, vectors: NDArray[np.float32]) -> Self:
        """Build an index of checked vectors (N, H), of length 1 for cosines."""

    @classmethod
    @abstractmethod
    def read(cls, ids: Sequence[str], metric: str, path: Path) -> Self:
        """Read the index that `write` wrote."""

    @abstractmethod
    def write(self, path: Path) -> None:
        """Write the vectors to a file."""

    @abstractmethod
    def nearest(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find scores and rows of the nearest vectors, best first: (Q, H) → (Q, K), (Q, K); row −1 for none."""

    def search(self, queries: NDArray[np.floating], k: int = 10) -> list[list[Hit]]:
        """Find the k nearest vectors of each query (Q, H), best first; fewer where the index has fewer.

        Raises: DataError when the queries are not finite numbers of the index's dimension, or k is below 1.
        """
        if k < 1:
            raise DataError(f"k is {k}; ask for at least 1 vector")
        prepared = prepare_vectors(queries, self.metric, "queries")
        if prepared.shape[1] != self.dimension:
            raise DataError(
                f"queries have {prepared.shape[1]} dimensions, the index {self.dimension}; use the model that made it"
            )
        scores, rows = self.nearest(prepared, min(k, len(self.ids)))
        return [
            [Hit(self.ids[row], score) for score, row in zip(*pair, strict=True) if row >= 0]
            for pair in zip(scores.tolist(), rows.tolist(), strict=True)
        ]


def prepare_vectors(vectors: NDArray[np.floating], metric: str, what: str) -> NDArray[np.float32]:
    """Make vectors (N, H) contiguous float32, of length 1 for cosines; a zero vector stays zero and is near nothing.

    Raises: DataError when they are no matrix of finite numbers.
    """
    prepared = np.ascontiguousarray(vectors, dtype=np.float32)
    if prepared.ndim != 2 or prepared.shape[1] == 0:
        raise DataError(f"{what} have the shape {np.shape(vectors)}; give one row of numbers for each")
    finite = np.isfinite(prepared).all(axis=1)
    if not finite.all():
        raise DataError(f"{what}[{int(np.argmin(finite))}] is not finite; a diverged model cannot be searched")
    if metric == "dot":
        return prepared
    lengths = np.linalg.norm(prepared, axis=1, keepdims=True)
    prepared /= np.maximum(lengths, np.finfo(np.float32).tiny)
    return prepared


_VECTORS_AT_A_TIME = 16384
_QUERIES_AT_A_TIME = 256


class ExactIndex(VectorIndex):
    """Index of all vectors as one matrix; a loaded one stays on the disk and is read as it is searched."""

    kind = "exact"
    file_name = "vectors.npy"

    def __init__(self, ids: Sequence[str], metric: str, vectors: NDArray[np.float32]) -> None:
        super().__init__(ids, metric, vectors.shape[1])
        self.vectors = vectors

    @classmethod
    def build(cls, ids: Sequence[str], metric: str, vectors: NDArray[np.float32]) -> Self:
        return cls(ids, metric, vectors)

    @classmethod
    def read(cls, ids: Sequence[str], metric: str, path: Path) -> Self:
        return cls(ids, metric, np.load(path, mmap_mode="r"))

    def write(self, path: Path) -> None:
        np.save(path, self.vectors)

    def nearest(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find the nearest vectors, with memory for a block of queries and a block of vectors, whatever N and Q are."""
        scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        for start in range(0, len(queries), _QUERIES_AT_A_TIME):
            part = slice(start, start + _QUERIES_AT_A_TIME)
            scores[part], rows[part] = self._nearest(queries[part], k)
        return scores, rows

    def _nearest(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        best_scores = np.empty((len(queries), 0), np.float32)
        best_rows = np.empty((len(queries), 0), np.int64)
        for start in range(0, len(self.vectors), _VECTORS_AT_A_TIME):
            block = self.vectors[start : start + _VECTORS_AT_A_TIME]
            rows = np.broadcast_to(np.arange(start, start + len(block)), (len(queries), len(block)))
            scores = np.concatenate([best_scores, queries @ block.T], axis=1)  # (Q, K + block)
            rows = np.concatenate([best_rows, rows], axis=1)
            if scores.shape[1] > k:
                found = np.argpartition(scores, (-k - 1, -k), axis=1)[:, -k - 1 :]  # (Q, K + 1), the least two first
                left_out, least = np.take_along_axis(scores, found[:, :2], axis=1).T  # (Q,) each
                kept = found[:, 1:]
                for query in np.flatnonzero(left_out == least):  # not all equal ones fit
                    kept[query] = np.lexsort((rows[query], -scores[query]))[:k]
                scores, rows = (np.take_along_axis(values, kept, axis=1) for values in (scores, rows))
            best_scores, best_rows = scores, rows
        order = np.lexsort((best_rows, -best_scores))  # of equal scores the earlier row first
        return np.take_along_axis(best_scores, order, axis=1), np.take_along_axis(best_rows, order, axis=1)


# Malkov and Yashunin (2018), section 4.1: M between 5 and 48, the more the higher the dimension; efConstruction such
# that building reaches a recall of 0.95 at least.
_NUM_LINKS = 32
_BUILDING_BREADTH = 200


class HnswIndex(VectorIndex):
    """Index by a graph that a search walks through; it holds the vectors as well, in memory.

    Faiss inserts with all threads at once, so that two builds may link differently.
    """

    kind = "hnsw"
    file_name = "graph.faiss"

    search_breadth: int = 64
    """Candidates that a search keeps on its walk (ef): more of them find more and take longer."""

    def __init__(self, ids: Sequence[str], metric: str, graph: "faiss.Index") -> None:
        super().__init__(ids, metric, graph.d)
        self.graph = graph

    @classmethod
    def build(cls, ids: Sequence[str], metric: str, vectors: NDArray[np.float32]) -> Self:
        """Build the graph. Raises: ConfigError when Faiss is not installed."""
        faiss = _import_faiss()
        graph = faiss.IndexHNSWFlat(vectors.shape[1], _NUM_LINKS, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = _BUILDING_BREADTH
        graph.add(vectors)
        return cls(ids, metric, graph)

    @classmethod
    def read(cls, ids: Sequence[str], metric: str, path: Path) -> Self:
        """Read the graph. Raises: ConfigError when Faiss is not installed, CheckpointError when there is no graph."""
        try:
            return cls(ids, metric, _import_faiss().read_index(str(path)))
        except RuntimeError:
            raise CheckpointError(f"{path} holds no graph that Faiss can read; build the index anew") from None

    def write(self, path: Path) -> None:
        _import_faiss().write_index(self.graph, str(path))

    def nearest(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        walk = _import_faiss().SearchParametersHNSW(efSearch=max(self.search_breadth, k))
        scores, rows = self.graph.search(queries, k, params=walk)
        return scores, rows


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise ConfigError(
            "an hnsw index needs Faiss; run: pip install 'bert-orchestrator[search]', or build an exact index"
        ) from None
    return faiss


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
    if len(ids) != len(prepared) or not ids:
        raise DataError(f"{len(ids)} ids for {len(prepared)} vectors; an index needs one for each, and at least one")
    if twice := [name for name, count in Counter(ids).items() if count > 1]:
        raise DataError(f"the id {twice[0]!r} stands twice; give each vector its own")
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
