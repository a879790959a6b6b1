"""Approximate search over a graph of near neighbors (Malkov and Yashunin 2018), by Faiss.

Shapes: N vectors, Q queries, K hits, H hidden.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from bert_core.errors import CheckpointError, ConfigError
from bert_core.vector_index.index import VectorIndex

if TYPE_CHECKING:
    import faiss

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
