"""Scores as the official scripts count them; each is a fraction, not a percentage. Only numpy is needed.

* Classification and regression, as GLUE defines them per task (Wang et al. 2018, section 3); scores of each class, and
  of labels of which an example has any number. Correlations lie between -1 and 1. One that is not defined, because one
  side never varies, counts as 0: a model that always says the same has learned nothing.
* Entities, as `conlleval` counts them: one is right when its first word, its last word and its type are (Tjong Kim Sang
  & De Meulder 2003).
* Answers, as SQuAD's scripts do. Version 1.1 (Rajpurkar et al. 2016, section 6.1) and version 2.0 (Rajpurkar et al.
  2018), where some question is unanswerable, differ in answers that hold nothing but articles and punctuation, which
  2.0 takes for no answer.
* Ranked retrieval. A judgment is a gain: 0 or less for a document that is not relevant, more for one that is, and a
  document without a judgment counts as not relevant.

Shapes: N examples, C classes.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bert_core.errors import DataError

_GLUE_SCORES: Mapping[str, tuple[str, ...]] = {
    "cola": ("matthews_correlation",),
    "sst2": ("accuracy",),
    "mrpc": ("accuracy", "f1"),
    "stsb": ("pearson", "spearman"),
    "qqp": ("accuracy", "f1"),
    "mnli": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
}


def glue_metrics(task: str, predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Score a GLUE task: predicted class numbers, or values for `stsb`, against the gold ones.

    `f1` is that of class 1. Raises: DataError.
    """
    if task not in _GLUE_SCORES:
        raise DataError(f"{task!r} is no GLUE task; one of: {', '.join(_GLUE_SCORES)}")
    scores = regression_metrics(predictions, labels) if task == "stsb" else binary_metrics(predictions, labels)
    return {name: scores[name] for name in _GLUE_SCORES[task]}


def glue_metric_names(task: str) -> tuple[str, ...]:
    return _GLUE_SCORES.get(task, ())


def binary_metrics(predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compute `classification_metrics`, and `f1` of class 1. Raises: DataError."""
    predicted, gold = _check_pair(predictions, labels)
    return {**classification_metrics(predicted, gold), "f1": _f1(predicted == 1, gold == 1)}


def classification_metrics(predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compute `accuracy`, `macro_f1` (the mean of F1 over the classes that occur) and `matthews_correlation`.

    Raises: DataError.
    """
    predicted, gold = _check_pair(predictions, labels)
    classes = np.union1d(predicted, gold)
    return {
        "accuracy": float(np.mean(predicted == gold)),
        "macro_f1": float(np.mean([_f1(predicted == c, gold == c) for c in classes])),
        "matthews_correlation": _matthews_correlation(predicted, gold, classes),
    }


def regression_metrics(predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Compute `pearson` and `spearman` correlation. Raises: DataError."""
    predicted, gold = (values.astype(np.float64) for values in _check_pair(predictions, labels))
    return {"pearson": _correlation(predicted, gold), "spearman": _correlation(_ranks(predicted), _ranks(gold))}


def _check_pair(predictions: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    predicted, gold = np.asarray(predictions), np.asarray(labels)
    if predicted.ndim != 1 or gold.ndim != 1:
        raise DataError(
            f"predictions have shape {predicted.shape}, labels {gold.shape}: give one number per example, "
            "the class (the argmax of its logits) or the value"
        )
    if len(predicted) != len(gold):
        raise DataError(f"{len(predicted)} predictions for {len(gold)} labels; there must be one for each")
    if not len(gold):
        raise DataError("there is no example to score; give at least one")
    for name, values in (("predictions", predicted), ("labels", gold)):
        if values.dtype.kind not in "biuf":
            raise DataError(f"{name} must be numbers, not {values.dtype}")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            place = int(np.flatnonzero(~np.isfinite(values))[0])
            raise DataError(f"{name}[{place}] is {values[place]}; a diverged model cannot be scored")
    return predicted, gold


def _f1(predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> float:
    total = int(predicted.sum() + gold.sum())
    return 2.0 * int((predicted & gold).sum()) / total if total else 0.0


def _matthews_correlation(predicted: NDArray[Any], gold: NDArray[Any], classes: NDArray[Any]) -> float:
    """Correlation of the class indicators: Matthews (1975), for more than two classes Gorodkin (2004)."""
    p = predicted[:, None] == classes[None, :]  # (N, C)
    g = gold[:, None] == classes[None, :]  # (N, C)
    p_centered, g_centered = p - p.mean(axis=0), g - g.mean(axis=0)  # (N, C)
    scale = float(np.sqrt((p_centered**2).sum() * (g_centered**2).sum()))
    return _as_correlation(float((p_centered * g_centered).sum()), scale)


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    if np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return 0.0
    x_centered, y_centered = x - x.mean(), y - y.mean()
    scale = float(np.linalg.norm(x_centered) * np.linalg.norm(y_centered))
    return _as_correlation(float(x_centered @ y_centered), scale)


def _as_correlation(covariance: float, scale: float) -> float:
    return min(1.0, max(-1.0, covariance / scale)) if scale > 0.0 else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank values from 1; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[which], dtype=np.float64)


@dataclass(frozen=True)
class ClassScores:
    """Scores of one class; one whose denominator is 0 is 0."""

    precision: float
    recall: float
    f1: float
    support: int
    """Number of gold examples of the class."""


def confusion_matrix(predicted: Sequence[int], gold: Sequence[int], num_classes: int) -> NDArray[np.int64]:
    """Count the examples of each gold class (rows) by their predicted class (columns): (C, C)."""
    counts = np.zeros((num_classes, num_classes), np.int64)
    np.add.at(counts, (np.asarray(gold, np.int64), np.asarray(predicted, np.int64)), 1)
    return counts


def class_scores(confusion: NDArray[np.int64]) -> list[ClassScores]:
    """Scores of each class of a confusion matrix (C, C), in the order of the classes."""
    right, found, wanted = np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1)
    return [
        ClassScores(
            precision=float(hits / max(num_found, 1)),
            recall=float(hits / max(num_wanted, 1)),
            f1=float(2 * hits / max(num_found + num_wanted, 1)),
            support=int(num_wanted),
        )
        for hits, num_found, num_wanted in zip(right, found, wanted, strict=True)
    ]


def multi_label_metrics(predictions: ArrayLike, labels: ArrayLike, probabilities: ArrayLike) -> dict[str, float]:
    """Compute `micro_f1`, `macro_f1`, `subset_accuracy` and `label_ranking_average_precision`.

    They are: F1 over all decisions together; the mean of each label's F1, over the labels that occur; the share of
    examples whose labels are all right; how high an example's labels rank (Tsoumakas, Katakis and Vlahavas 2010).

    Args:
        predictions: (N, C) whether a label is predicted for an example.
        labels: (N, C) whether the example has the label.
        probabilities: (N, C) numbers that the labels are ranked by.

    Raises: DataError when they are not tables of one shape, or hold values that are not finite.
    """
    predicted, gold = np.asarray(predictions, dtype=bool), np.asarray(labels, dtype=bool)
    ranked_by = np.asarray(probabilities, dtype=np.float64)
    if not predicted.shape == gold.shape == ranked_by.shape or gold.ndim != 2 or not gold.size:
        raise DataError(
            f"predictions have shape {predicted.shape}, labels {gold.shape}, probabilities {ranked_by.shape}: "
            "give a row per example and a column per label"
        )
    if not np.isfinite(ranked_by).all():
        raise DataError("probabilities hold values that are not finite; a diverged model cannot be scored")
    right = (predicted & gold).sum(axis=0)  # (C,)
    predicted_or_gold = predicted.sum(axis=0) + gold.sum(axis=0)  # (C,)
    occurs = predicted_or_gold > 0
    return {
        "micro_f1": float(2 * right.sum() / max(1, predicted_or_gold.sum())),
        "macro_f1": float(np.mean(2 * right[occurs] / predicted_or_gold[occurs])) if occurs.any() else 0.0,
        "subset_accuracy": float(np.mean((predicted == gold).all(axis=1))),
        "label_ranking_average_precision": _ranking_precision(gold, ranked_by),
    }


def _ranking_precision(gold: NDArray[np.bool_], ranked_by: NDArray[np.float64]) -> float:
    """Compute label ranking average precision.

    For each label of an example it takes the share of the example's labels among those ranked as high or higher, then
    the mean over its labels, and over the examples. An example with all labels or none counts 1: no order is wrong.
    """
    num_gold = gold.sum(axis=1)  # (N,)
    totals = np.zeros(len(gold))
    for label in range(gold.shape[1]):
        as_high = ranked_by >= ranked_by[:, [label]]  # (N, C)
        totals += gold[:, label] * (as_high & gold).sum(axis=1) / as_high.sum(axis=1)
    means = np.divide(totals, num_gold, out=np.ones(len(gold)), where=num_gold > 0)
    return float(means.mean())


EntitySpan = tuple[int, int, str]
"""An entity: its first word, the word past its last, and its type."""


def ner_f1(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compute `precision`, `recall` and `f1` over all entities of all sentences; tags are BIO or IOB1.

    A score whose denominator is 0 is 0. Raises: DataError when the two do not line up, or for a tag that is not BIO.
    """
    found, wanted, right = _count_entities(predicted, gold)
    return _entity_scores(found.total(), wanted.total(), right.total())


def ner_f1_by_type(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    """Compute the scores of `ner_f1` for each type of entity that occurs, types sorted. Raises: DataError."""
    found, wanted, right = _count_entities(predicted, gold)
    return {kind: _entity_scores(found[kind], wanted[kind], right[kind]) for kind in sorted(found | wanted)}


def entity_spans(tags: Iterable[str]) -> list[EntitySpan]:
    """Find the entities of one sentence. `B-` always begins one, `I-` does where the word before is of another type.

    Raises: DataError.
    """
    spans: list[EntitySpan] = []
    start, current = 0, ""
    position = -1
    for position, tag in enumerate(tags):
        prefix, kind = tag[:2], tag[2:]
        if tag == "O":
            kind = ""
        elif prefix not in ("B-", "I-") or not kind:
            raise DataError(f"tag {tag!r} is not O, B-type or I-type")
        if current and (prefix == "B-" or kind != current):
            spans.append((start, position, current))
        if kind and (prefix == "B-" or kind != current):
            start = position
        current = kind
    if current:
        spans.append((start, position + 1, current))
    return spans


def _count_entities(
    predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Count entities by type: predicted ones, gold ones, and those that are both."""
    if len(predicted) != len(gold):
        raise DataError(f"{len(predicted)} predicted sentences for {len(gold)} gold ones; there must be one for each")
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for number, (predicted_tags, gold_tags) in enumerate(zip(predicted, gold, strict=True)):
        if len(predicted_tags) != len(gold_tags):
            raise DataError(
                f"sentence {number} has {len(predicted_tags)} predicted tags for {len(gold_tags)} gold ones; "
                "there must be one for each word"
            )
        predicted_spans, gold_spans = entity_spans(predicted_tags), entity_spans(gold_tags)
        found.update(kind for _, _, kind in predicted_spans)
        wanted.update(kind for _, _, kind in gold_spans)
        right.update(kind for _, _, kind in set(predicted_spans) & set(gold_spans))
    return found, wanted, right


def _entity_scores(num_found: int, num_wanted: int, num_right: int) -> dict[str, float]:
    return {
        "precision": num_right / num_found if num_found else 0.0,
        "recall": num_right / num_wanted if num_wanted else 0.0,
        "f1": 2.0 * num_right / (num_found + num_wanted) if num_right else 0.0,
    }


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_scores(predictions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Compute `exact_match` and `f1` over the questions of `references`; an empty list of answers means unanswerable.

    Where some question is unanswerable, also `HasAns_exact` and `HasAns_f1` (unless all are), `NoAns_exact` and
    `NoAns_f1`; its right prediction is the empty text. A question without a prediction scores 0, predictions for
    other questions are left aside. Raises: DataError when there is no question, or a prediction is not text.
    """
    if not references:
        raise DataError("there is no question to score; references are {id: [answers]}")
    unanswerable = any(not answers for answers in references.values())
    scored = {
        key: answer_scores(predictions[key], answers, unanswerable=unanswerable) if key in predictions else (0.0, 0.0)
        for key, answers in references.items()
    }
    results = _averages(list(scored.values()), "exact_match", "f1")
    if unanswerable:
        answerable = [scored[key] for key, answers in references.items() if answers]
        rest = [scored[key] for key, answers in references.items() if not answers]
        results |= _averages(answerable, "HasAns_exact", "HasAns_f1") if answerable else {}
        results |= _averages(rest, "NoAns_exact", "NoAns_f1")
    return results


def answer_scores(prediction: str, answers: Sequence[str], *, unanswerable: bool) -> tuple[float, float]:
    """Compute exact match and F1 of one answer, each the best over the gold answers.

    Without gold answers, the empty answer is right.

    `unanswerable` says whether the data set has such questions (version 2.0). Raises: DataError.
    """
    if not isinstance(prediction, str) or isinstance(answers, str):
        raise DataError(f"predictions are {{id: text}} and references {{id: [texts]}}; got {prediction!r}, {answers!r}")
    said = normalize_answer(prediction)
    golds = [normalize_answer(answer) for answer in answers]
    if unanswerable or not golds:
        golds = [gold for gold in golds if gold] or [""]
    return float(said in golds), max(_word_f1(said.split(), gold.split(), unanswerable) for gold in golds)


def normalize_answer(text: str) -> str:
    """Normalize an answer: lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _word_f1(said: list[str], gold: list[str], unanswerable: bool) -> float:
    if unanswerable and not (said and gold):
        return float(said == gold)
    shared = (Counter(said) & Counter(gold)).total()
    return 2.0 * shared / (len(said) + len(gold)) if shared else 0.0


def _averages(scores: Sequence[tuple[float, float]], exact_name: str, f1_name: str) -> dict[str, float]:
    exacts, f1s = zip(*scores, strict=True)
    return {exact_name: sum(exacts) / len(exacts), f1_name: sum(f1s) / len(f1s)}


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
        query: _query_scores(query, rankings.get(query, ()), gains, cutoffs)
        for query, gains in judgments.items()
        if any(gain > 0 for gain in gains.values())
    }
    if not scores:
        raise DataError("no query has a relevant document, one with a gain above 0; check the judgments")
    return scores


def _query_scores(
    query: str, ranking: Sequence[str], gains: Mapping[str, float], cutoffs: Sequence[int]
) -> dict[str, float]:
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
