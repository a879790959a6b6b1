"""Recall, MRR and nDCG of rankings, against hand-made cases and scikit-learn.

Alone: pytest tests/bert_core/metrics/test_retrieval.py
"""

from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from bert_core.errors import DataError
from bert_core.metrics import retrieval_metrics, retrieval_metrics_by_query

JUDGMENTS = {"q": {"a": 3.0, "b": 1.0, "c": 2.0, "d": 0.0, "e": -1.0}}
RANKING = ["d", "c", "x", "a", "e"]


@pytest.mark.parametrize(
    ("k", "recall", "mrr", "ndcg"),
    [
        (1, 0.0, 0.0, 0.0),
        (2, 1 / 3, 0.5, (2 / log2(3)) / (3 + 2 / log2(3))),
        (4, 2 / 3, 0.5, (2 / log2(3) + 3 / log2(5)) / (3 + 2 / log2(3) + 1 / 2)),
        (100, 2 / 3, 0.5, (2 / log2(3) + 3 / log2(5)) / (3 + 2 / log2(3) + 1 / 2)),
    ],
)
def test_a_hand_made_case(k: int, recall: float, mrr: float, ndcg: float) -> None:
    scores = retrieval_metrics_by_query({"q": RANKING}, JUDGMENTS, [k])["q"]
    assert scores == pytest.approx({f"recall_at_{k}": recall, f"mrr_at_{k}": mrr, f"ndcg_at_{k}": ndcg})


@given(gains=st.lists(st.integers(0, 4), min_size=2, max_size=20), k=st.integers(1, 25), data=st.data())
def test_ndcg_agrees_with_scikit_learn(gains: list[int], k: int, data: st.DataObject) -> None:
    gains[0] += not any(gains)
    order = data.draw(st.permutations(range(len(gains))))
    scores = np.empty(len(gains))
    scores[order] = np.arange(len(gains), 0, -1)
    ours = retrieval_metrics({"q": [str(i) for i in order]}, {"q": {str(i): g for i, g in enumerate(gains)}}, [k])
    assert ours[f"ndcg_at_{k}"] == pytest.approx(ndcg_score([gains], [scores], k=k))


def test_the_best_order_scores_1() -> None:
    assert retrieval_metrics({"q": ["a", "c", "b"]}, JUDGMENTS, [3]) == pytest.approx(
        {"recall_at_3": 1.0, "mrr_at_3": 1.0, "ndcg_at_3": 1.0}
    )


def test_the_mean_is_over_queries_with_a_relevant_document_found_or_not() -> None:
    judgments = {**JUDGMENTS, "lost": {"a": 1.0}, "unanswerable": {"a": 0.0}}
    rankings = {"q": ["a", "c", "b"], "unanswerable": ["a"], "unjudged": ["a"]}
    assert retrieval_metrics_by_query(rankings, judgments).keys() == {"q", "lost"}
    assert retrieval_metrics(rankings, judgments)["recall_at_10"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rankings", "judgments", "cutoffs", "message"),
    [
        ({"q": ["a", "b", "a"]}, JUDGMENTS, [10], "ranking of query 'q' names a document twice"),
        ({"q": ["a"]}, {"q": {"a": 0.0}}, [10], "no query has a relevant document"),
        ({"q": ["a"]}, JUDGMENTS, [0], r"cut-offs are \[0\]"),
        ({"q": ["a"]}, JUDGMENTS, [], r"cut-offs are \[\]"),
    ],
)
def test_what_cannot_be_scored_is_named(rankings: dict, judgments: dict, cutoffs: list, message: str) -> None:
    with pytest.raises(DataError, match=message):
        retrieval_metrics(rankings, judgments, cutoffs)
