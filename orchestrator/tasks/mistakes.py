"""Mistakes of a model, from its prediction rows: those just made, or those that a run has kept.

The keys of a row tell what was predicted: a class or several labels, a tag of each word, a value, an answer, a choice.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from operator import ne
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bert_core.metrics import class_scores, confusion_matrix, entity_spans, ner_f1_by_type

PredictionRow: TypeAlias = Mapping[str, Any]
Table: TypeAlias = Sequence[Mapping[str, Any]]


def wrongness(row: PredictionRow) -> float:
    """Degree of a mistake, 0 for a right prediction; only the order matters.

    Distance of a value, number of wrong tags, 1 - F1 of an answer, probability of a wrong class or choice. Of several
    labels it is the probability of the surest wrong one: given to a label that is not right, or kept from one that is.
    """
    if "error" in row:
        return abs(float(row["error"]))
    if "words" in row:
        return float(sum(map(ne, row["prediction"], row["gold"])))
    if "exact_match" in row:
        return 1.0 - float(row.get("f1") or 0.0)
    if row.get("correct", True):
        return 0.0
    given, predicted, gold = row.get("probabilities"), row["prediction"], row["gold"]
    if isinstance(predicted, list) and isinstance(given, dict):
        wrong = [name for name in given if (name in predicted) != (name in (gold or []))]
        return max((given[name] if name in predicted else 1.0 - given[name] for name in wrong), default=1.0)
    probability = predicted_probability(row)
    return 1.0 if probability is None else probability


def worst_mistakes(rows: Iterable[PredictionRow]) -> list[PredictionRow]:
    """The rows of wrong predictions, the worst first."""
    return sorted((row for row in rows if wrongness(row) > 0), key=wrongness, reverse=True)


def predicted_probability(row: PredictionRow) -> float | None:
    """Probability of the predicted class or choice; None where it is not known."""
    given, predicted = row.get("probabilities"), row.get("prediction")
    if isinstance(given, dict):
        return given.get(str(predicted))
    is_place = isinstance(given, list) and isinstance(predicted, int) and 0 <= predicted < len(given)
    return float(given[predicted]) if is_place else None  # type: ignore[index]


def breakdown(rows: Sequence[PredictionRow], max_confusions: int | None = None) -> dict[str, Table]:
    """Tables of scores by class, tag, entity type or kind of question; none for values, choices and rankings.

    Args:
        max_confusions: number of classes above which there is no table `confusions`.
    """
    if not rows:
        return {}
    first = rows[0]
    predicted, gold = ([row[side] for row in rows] for side in ("prediction", "gold"))
    if "words" in first:
        tags = sorted({tag for some in (*predicted, *gold) for tag in some})
        if all(tag == "O" or tag[:2] in ("B-", "I-") for tag in tags):
            return {"entities": _entities(predicted, gold)}
        return {"tags": _class_table("tag", tags, _confusions(tags, chain(*predicted), chain(*gold)))}
    if "exact_match" in first:
        return {"questions": [*_questions(rows)]}
    labels = [*first["probabilities"]] if isinstance(first.get("probabilities"), dict) else []
    if isinstance(first["prediction"], list) and labels:
        return {"classes": [*_labels(labels, predicted, gold)]}
    if not (isinstance(first["prediction"], str) and isinstance(first["gold"], str)):
        return {}
    classes = labels if {*predicted, *gold} <= {*labels} else sorted({*predicted, *gold})
    counts = _confusions(classes, predicted, gold)
    tables = {"classes": _class_table("label", classes, counts)}
    if max_confusions is None or len(classes) <= max_confusions:
        heading = "gold" if "gold" not in classes else "gold class"
        rows_of_counts = zip(classes, counts.tolist(), strict=True)
        tables["confusions"] = [{heading: gold, **dict(zip(classes, row, strict=True))} for gold, row in rows_of_counts]
    return tables


def _confusions(names: Sequence[str], predicted: Iterable[str], gold: Iterable[str]) -> NDArray[np.int64]:
    """Number of times that each class (rows) was given each class: (C, C)."""
    number = {name: place for place, name in enumerate(names)}
    return confusion_matrix([number[name] for name in predicted], [number[name] for name in gold], len(names))


def _class_table(heading: str, names: Sequence[str], confusions: NDArray[np.int64]) -> Table:
    return [{heading: name, **asdict(own)} for name, own in zip(names, class_scores(confusions), strict=True)]


def _labels(
    labels: Sequence[str], predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]
) -> Iterator[Mapping[str, Any]]:
    """Scores of each label, each a choice of its own."""
    for label in labels:
        counts = confusion_matrix([label in some for some in predicted], [label in some for some in gold], 2)
        yield {"label": label, **asdict(class_scores(counts)[1])}


def _entities(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> Table:
    """Scores of each type, with the number of gold entities."""
    support = Counter(kind for tags in gold for _, _, kind in entity_spans(tags))
    scores = ner_f1_by_type(predicted, gold)
    return [{"entity": kind, **own, "support": support[kind]} for kind, own in scores.items()]


def _questions(rows: Sequence[PredictionRow]) -> Iterator[Mapping[str, Any]]:
    """Questions with and without an answer: how many were answered, rightly or not, and their scores."""
    for kind, is_answerable in (("with an answer", True), ("without an answer", False)):
        chosen = [row for row in rows if bool(row["gold"]) == is_answerable]
        if chosen:
            answered = sum(bool(row["prediction"]) for row in chosen)
            scores = {name: fmean(row[name] for row in chosen) for name in ("exact_match", "f1")}
            yield {"questions": kind, "number": len(chosen), "answered": answered, **scores}
