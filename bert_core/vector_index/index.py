"""Contract of an index: vectors with ids, and the ones nearest to a query.

Shapes: N vectors, Q queries, K hits, H hidden.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bert_core.errors import DataError

METRICS = ("cosine", "dot")


class Hit(NamedTuple):
    """A vector that was found."""

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


def check_ids(ids: Sequence[str], num_vectors: int) -> None:
    """Check that each vector, and at least one, has an id of its own. Raises: DataError."""
    if len(ids) != num_vectors or not ids:
        raise DataError(f"{len(ids)} ids for {num_vectors} vectors; an index needs one for each, and at least one")
    twice = [name for name, count in Counter(ids).items() if count > 1]
    if twice:
        raise DataError(f"the id {twice[0]!r} stands twice; give each vector its own")
