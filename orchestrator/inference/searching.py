"""Queries in, documents out: from an index, scored again where a reranker is given; and pairs to learn from."""

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from bert_core.constants import AskedPrecision
from bert_core.text_embedding import TextEmbedder
from orchestrator.base.errors import InputError
from orchestrator.base.results import Split
from orchestrator.cluster.torch_devices import choose_device
from orchestrator.finetuning.evaluation import predict_examples
from orchestrator.finetuning.logits import TokenBudget
from orchestrator.finetuning.model_folder import FineTunedModel, load_fine_tuned
from orchestrator.inference.document_index import (
    DocumentIndex,
    FoundDocument,
    OnProgress,
    index_fingerprint,
    open_document_index,
)
from orchestrator.inference.text_vectors import embed_texts, embedder_fingerprint, load_embedder
from orchestrator.storage import join, local_copy
from orchestrator.tasks.task import Task
from orchestrator.tasks.types.base import TaskDefinition
from orchestrator.tasks.types.requests import Request
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


@dataclass(frozen=True)
class Reranking:
    """Options of reranking: model folder, label that counts, number of hits."""

    folder: str
    """A model fine-tuned on pairs: for a score, or for classes."""
    relevant_label: str | None = None
    """The class whose probability is the score."""
    num_candidates: int = 50
    """Number of first hits that are scored again."""


class Reranker:
    """A model that reads query and document together (Nogueira and Cho 2019).

    Its scores put the first hits in order; the rest follow them as they were.
    """

    def __init__(
        self, asked: Reranking, batch_size: int = 64, device: str = "cpu", precision: AskedPrecision = "fp32"
    ) -> None:
        """Load the model that `asked` names, on a device.

        Raises: InputError when the model says nothing about pairs or has no such label; CheckpointError.
        """
        self.model: FineTunedModel = load_fine_tuned(local_copy(asked.folder))
        self.model.model.to(choose_device(device, precision=precision))
        self.task = self.model.task
        self.num_candidates, self.batch_size, self.precision = asked.num_candidates, batch_size, precision
        self._token_budget = TokenBudget()
        self._relevance = relevance_of(self.task, asked.relevant_label, asked.folder)

    def rerank(self, query: str, hits: Sequence[FoundDocument]) -> list[FoundDocument]:
        """The hits in their new order; equal scores keep theirs."""
        first = hits[: self.num_candidates]
        if not first:
            return []
        scores = self._score(query, [hit.text for hit in first])
        order = np.argsort(-np.array(scores), kind="stable")
        return [*(first[place]._replace(score=scores[place]) for place in order), *hits[self.num_candidates :]]

    def _score(self, query: str, texts: Sequence[str]) -> list[float]:
        head, keys = self.task.head, self.task.type.request.keys
        requests = (Request({"text": query, "text_pair": text}, n, head, keys) for n, text in enumerate(texts, start=1))
        examples = [self.task.type.example_of(self.task, request) for request in requests]
        predictions = predict_examples(self.model, examples, self.batch_size, self.precision, self._token_budget)
        return [self._relevance(prediction) for prediction in predictions]


def relevance_of(task: TaskDefinition, label: str | None, folder: str) -> Callable[[Any], float]:
    """Function from a model's prediction for a query and a document to the document's relevance.

    Args:
        label: the class that marks a document as relevant.
        folder: the model's, for messages.

    Raises: InputError when predictions say nothing about pairs of texts, or the label does not fit.
    """
    if not task.target.ranks_documents or len(task.text_columns) == 1:
        raise InputError(
            f"{folder} is a model for {task.head}; documents are scored again by one fine-tuned on pairs of texts, "
            "for regression or classification"
        )
    if not task.labels:
        if label is not None:
            raise InputError(f"{folder} gives a score and has no label {label!r}; leave the label out")
        return lambda prediction: float(prediction.value)
    if label is None or label not in task.labels:
        wrong = "" if label is None else f", and {label!r} is none of them"
        raise InputError(
            f"{folder} knows the labels {', '.join(task.labels)}{wrong}; name the one that marks a document that "
            "answers as relevant"
        )
    place = task.labels.index(label)
    return lambda prediction: float(prediction.probabilities[place])


@dataclass(frozen=True)
class Searcher:
    """A model, documents, and perhaps a reranker."""

    embedder: TextEmbedder
    index: DocumentIndex
    reranker: Reranker | None
    on_progress: OnProgress

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
    precision: AskedPrecision = "fp32",
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
    precision: AskedPrecision = "fp32",
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


def mine_pairs(
    model: str,
    task: Task,
    split: Split,
    num_negatives: int,
    num_candidates: int,
    on_progress: OnProgress,
    cache: str | None = None,
    for_encoder: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield pairs to learn from: a query's relevant documents, and others that rank beside them.

    A cross-encoder orders what a first model has found, so its negatives are drawn from there (Gao, Dai and Callan
    2021); an encoder learns more from them than from other queries' documents (Karpukhin et al. 2020, section 5.2).
    Documents that nobody has judged count as not relevant.

    For a reranker each relevant document is a pair (yes), and so are up to `num_negatives` others for each (no). For an
    encoder a relevant document and its others are one row: query, positive, negatives. The others are drawn from the
    first `num_candidates` that the model finds and that are not relevant, no text twice for a query nor one of a
    relevant document, fewer where there are fewer. The draw depends on the query's id alone.

    Raises: InputError, also where no relevant document of the split has a text; CheckpointError, TaskDataError.
    """
    reader = collection_of(task)
    queries: Sequence[QueryExample] = task.examples(split)
    with open_searcher(model, reader.documents, None, None, on_progress, cache=cache) as searcher:
        rankings, any_relevant = searcher.search([query.text for query in queries], num_candidates), False
        for number, (query, hits) in enumerate(zip(queries, rankings, strict=True), start=1):
            on_progress(f"mined the hits of query {number:,} of {len(queries):,}")
            relevant = searcher.index.texts(name for name, gain in query.gains.items() if gain > 0)
            any_relevant = any_relevant or bool(relevant)
            yield from _pairs_of(query, list(relevant.values()), hits, num_negatives, for_encoder)
        if not any_relevant:
            raise InputError(
                f"none of the documents that {task.file(split)} calls relevant has a text in {reader.documents}; "
                "check that both name documents alike"
            )


def _pairs_of(
    query: QueryExample, relevant: Sequence[str], hits: Sequence[FoundDocument], num_negatives: int, for_encoder: bool
) -> Iterator[dict[str, Any]]:
    """Yield the pairs of one query, as `mine_pairs` says."""
    found = dict.fromkeys(hit.text for hit in hits if query.gains.get(hit.id, 0) <= 0)
    others = [text for text in found if text not in relevant]
    drawn = random.Random(query.id).sample(others, min(num_negatives * len(relevant), len(others)))
    if for_encoder:
        for place, text in enumerate(relevant):
            yield {"query": query.text, "positive": text, "negatives": drawn[place :: len(relevant)]}
        return
    for texts, answer in ((relevant, "yes"), (drawn, "no")):
        for text in texts:
            yield {"query": query.text, "document": text, "relevant": answer}
