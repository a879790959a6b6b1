"""Exact search: every vector is compared with every query, block by block.

Shapes: N vectors, Q queries, K hits, H hidden.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bert_core.vector_index.index import VectorIndex

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
                kept = np.argpartition(scores, -k, axis=1)[:, -k:]  # (Q, K)
                scores, rows = (np.take_along_axis(values, kept, axis=1) for values in (scores, rows))
            best_scores, best_rows = scores, rows
        order = np.lexsort((best_rows, -best_scores))  # of equal scores the earlier row first
        return np.take_along_axis(best_scores, order, axis=1), np.take_along_axis(best_rows, order, axis=1)
