"""Pairs that a reranker learns from: a query with a document that is relevant, and with others that rank beside it.

A cross-encoder orders what a first model has found, so its negatives are drawn from there (Gao, Dai and Callan 2021);
documents that nobody has judged count as not relevant.
"""

import random
from collections.abc import Iterator, Sequence

from orchestrator.errors import InputError
from orchestrator.results import Split
from orchestrator.retrieval.collections import collection_of
from orchestrator.retrieval.document_index import OnProgress
from orchestrator.retrieval.searching import open_searcher
from orchestrator.tasks import Task
from orchestrator.tasks.types.beir import QueryExample

RELEVANT = "yes"
NOT_RELEVANT = "no"


def mine_pairs(
    model: str,
    task: Task,
    split: Split,
    num_negatives: int,
    num_candidates: int,
    on_progress: OnProgress,
    cache: str | None = None,
) -> Iterator[dict[str, str]]:
    """Yield query-document pairs: each relevant document (yes), then up to `negatives` others for each (no).

    These are drawn from the first `num_candidates` that the model finds and that are not relevant, no text twice for a
    query nor one of a relevant document, fewer where there are fewer. The draw depends on the query's id alone.

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
            found = dict.fromkeys(hit.text for hit in hits if query.gains.get(hit.id, 0) <= 0)
            others = [text for text in found if text not in relevant.values()]
            drawn = random.Random(query.id).sample(others, min(num_negatives * len(relevant), len(others)))
            for texts, answer in ((relevant.values(), RELEVANT), (drawn, NOT_RELEVANT)):
                for text in texts:
                    yield {"query": query.text, "document": text, "relevant": answer}
        if not any_relevant:
            raise InputError(
                f"none of the documents that {task.file(split)} calls relevant has a text in {reader.documents}; "
                "check that both name documents alike"
            )
