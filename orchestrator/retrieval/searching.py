"""Queries in, documents out: from an index, scored again where a reranker is given."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from bert_core.text_embedding import TextEmbedder
from orchestrator.errors import InputError
from orchestrator.results import Split
from orchestrator.retrieval.document_index import (
    DocumentIndex,
    FoundDocument,
    OnProgress,
    index_fingerprint,
    open_document_index,
)
from orchestrator.retrieval.reranking import Reranker, Reranking
from orchestrator.retrieval.text_vectors import embed_texts, embedder_fingerprint, load_embedder
from orchestrator.specs.network import Precision
from orchestrator.storage import join
from orchestrator.tasks import Task
from orchestrator.tasks.types.retrieval import QueryExample, RankingPrediction, RetrievalReader

_QUERIES_AT_A_TIME = 256
INDEXES = "indexes"
"""The folder of the storage where the indexes of tasks' documents are kept."""
RANKING_DEPTH = 100
"""Documents of a ranking that is scored: enough for the deepest cut-off."""


def collection_of(task: Task) -> RetrievalReader:
    """The reader of the collection that a task is searched in. Raises: InputError for a task without one."""
    if not isinstance(task.reader, RetrievalReader):
        raise InputError(f"task {task.id} is no retrieval: it has no documents to find; name a collection")
    return task.reader


class Searcher:
    """A model, documents, and perhaps a reranker."""

    def __init__(
        self, embedder: TextEmbedder, index: DocumentIndex, reranker: Reranker | None, on_progress: OnProgress
    ) -> None:
        self.embedder = embedder
        self.index = index
        self.reranker = reranker
        self.on_progress = on_progress

    def search(self, queries: Iterable[str], k: int) -> Iterator[list[FoundDocument]]:
        """The k best documents of each query, in the order of the queries.

        Raises: InputError, naming a query without any token by its number from 1.
        """
        depth = max(k, self.reranker.num_candidates if self.reranker else 0)
        remaining = enumerate(queries, start=1)
        while chunk := list(islice(remaining, _QUERIES_AT_A_TIME)):
            numbers, some = zip(*chunk, strict=True)
            vectors = embed_texts(self.embedder, some, numbers, "query", self.embedder.model.embedding.query_prompt)
            for number, query, hits in zip(numbers, some, self.index.search(vectors, depth), strict=True):
                if self.reranker is not None:
                    hits = self.reranker.rerank(query, hits)
                    self.on_progress(f"reranked the hits of query {number:,}")
                yield hits[:k]


@contextmanager
def open_searcher(
    model: str,
    documents: str | None,
    index: str | None,
    reranking: Reranking | None,
    on_progress: OnProgress,
    kind: str = "exact",
    cache: str | None = None,
    device: str = "cpu",
    precision: Precision = "fp32",
    dimensions: int | None = None,
) -> Iterator[Searcher]:
    """Open a searcher over an index folder, or over a file of documents whose index is cached or built.

    Args:
        index: folder of the index, which is built there if there is none.
        kind: kind of an index that is built: "exact" or "hnsw".
        cache: folder on the storage where indexes lie by what they were made from, and are found again.
        device: where the models compute, `cpu` or `cuda`.
        precision: arithmetic of both models.
        dimensions: numbers of a vector that are kept; None for all.

    Raises: InputError, CheckpointError, ConfigError.
    """
    embedder = load_embedder(model, device, precision, dimensions)
    reranker = None if reranking is None else Reranker(reranking, device=device, precision=precision)
    encoder = embedder_fingerprint(embedder, model)
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as scratch:
        if index is None:
            assert documents is not None, "there is something to search"
            in_cache = cache and join(cache, index_fingerprint(encoder, documents, kind))
            index = in_cache or join(scratch, "index")
        opened = open_document_index(index, documents, embedder, encoder, kind, on_progress)
        yield Searcher(embedder, opened, reranker, on_progress)


def rank_queries(
    model: str,
    task: Task,
    split: Split,
    reranking: Reranking | None,
    on_progress: OnProgress,
    cache: str | None = None,
    device: str = "cpu",
    precision: Precision = "fp32",
) -> tuple[list[RankingPrediction], dict[str, int]]:
    """The ranking of the documents for each query of a split, and what was counted of the documents.

    Their vectors stay in the cache, where there is one, for the next time. Raises as `open_searcher`; TaskDataError.
    """
    reader = collection_of(task)
    queries: Sequence[QueryExample] = task.examples(split)
    with open_searcher(
        model, reader.documents, None, reranking, on_progress, cache=cache, device=device, precision=precision
    ) as searcher:
        rankings = [
            RankingPrediction(tuple(hit.id for hit in hits), tuple(hit.score for hit in hits))
            for hits in searcher.search([query.text for query in queries], RANKING_DEPTH)
        ]
        return rankings, searcher.index.counts
