"""Scores of ranked retrieval, for a query and averaged over queries.

A judgment is a gain: 0 or less for a document that is not relevant, more for one that is. A document without a
judgment counts as not relevant.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bert_core.errors import DataError

Rankings = Mapping[str, Sequence[str]]
"""Query → ids of documents, best first."""
Judgments = Mapping[str, Mapping[str, float]]
"""Query → document → gain."""


def retrieval_metrics(rankings: Rankings, judgments: Judgments, cutoffs: Sequence[int] = (10,)) -> dict[str, float]:
    """Average the scores over the queries that have a relevant document, by names such as `recall_at_10`.

    Raises: DataError as `retrieval_metrics_by_query` does.
    """
    by_query = retrieval_metrics_by_query(rankings, judgments, cutoffs)
    names = next(iter(by_query.values()))
    return {name: float(np.mean([scores[name] for scores in by_query.values()])) for name in names}


def retrieval_metrics_by_query(
    rankings: Rankings, judgments: Judgments, cutoffs: Sequence[int] = (10,)
) -> dict[str, dict[str, float]]:
    """Score each query that has a relevant document, at each cut-off k; a query without a ranking found nothing.

    * `recall_at_k`: the share of its relevant documents among the first k
    * `mrr_at_k`: 1 / rank of the first relevant document, 0 where none is among the first k
    * `ndcg_at_k`: gains over log2(rank + 1), summed, as a share of the best order's sum. Järvelin and Kekäläinen (2002)
      with the gain as it is, not 2^gain − 1, and the discount in use since, which lowers rank 2 as well

    Raises: DataError when no query has a relevant document, a ranking names one twice, or a cut-off is below 1.
    """
    if not cutoffs or min(cutoffs) < 1:
        raise DataError(f"the cut-offs are {list(cutoffs)}; give ranks of at least 1")
    scores = {
        query: _scores(query, rankings.get(query, ()), gains, cutoffs)
        for query, gains in judgments.items()
        if any(gain > 0 for gain in gains.values())
    }
    if not scores:
        raise DataError("no query has a relevant document, one with a gain above 0; check the judgments")
    return scores


def _scores(query: str, ranking: Sequence[str], gains: Mapping[str, float], cutoffs: Sequence[int]) -> dict[str, float]:
    if len(set(ranking)) < len(ranking):
        raise DataError(f"the ranking of query {query!r} names a document twice; each belongs in it once")
    found = np.array([max(gains.get(document, 0.0), 0.0) for document in ranking], np.float64)
    relevant = np.array(sorted((gain for gain in gains.values() if gain > 0), reverse=True), np.float64)
    scores: dict[str, float] = {}
    for k in cutoffs:
        hits = np.flatnonzero(found[:k])
        scores[f"recall_at_{k}"] = len(hits) / len(relevant)
        scores[f"mrr_at_{k}"] = 1.0 / (int(hits[0]) + 1) if len(hits) else 0.0
        scores[f"ndcg_at_{k}"] = _discounted(found[:k]) / _discounted(relevant[:k])
    return scores


def _discounted(gains: NDArray[np.float64]) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())
