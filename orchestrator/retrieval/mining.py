"""Pairs that rerankers and encoders learn from: a query's relevant documents, and others that rank beside them.

A cross-encoder orders what a first model has found, so its negatives are drawn from there (Gao, Dai and Callan 2021);
an encoder learns more from them than from other queries' documents (Karpukhin et al. 2020, section 5.2). Documents that
nobody has judged count as not relevant.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.errors import InputError
from orchestrator.results import Split
from orchestrator.retrieval.document_index import OnProgress
from orchestrator.retrieval.searching import collection_of, open_searcher
from orchestrator.tasks import Task
from orchestrator.tasks.types.retrieval import QueryExample

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
    for_encoder: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield query-document pairs: each relevant document (yes), then up to `num_negatives` others for each (no).

    For an encoder a relevant document and its others are one row: query, positive, negatives. The others are drawn from
    the first `num_candidates` that the model finds and that are not relevant, no text twice for a query nor one of a
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
            found = dict.fromkeys(hit.text for hit in hits if query.gains.get(hit.id, 0) <= 0)
            others = [text for text in found if text not in relevant.values()]
            drawn = random.Random(query.id).sample(others, min(num_negatives * len(relevant), len(others)))
            if for_encoder:
                for place, text in enumerate(relevant.values()):
                    yield {"query": query.text, "positive": text, "negatives": drawn[place :: len(relevant)]}
                continue
            for texts, answer in ((relevant.values(), RELEVANT), (drawn, NOT_RELEVANT)):
                for text in texts:
                    yield {"query": query.text, "document": text, "relevant": answer}
        if not any_relevant:
            raise InputError(
                f"none of the documents that {task.file(split)} calls relevant has a text in {reader.documents}; "
                "check that both name documents alike"
            )
