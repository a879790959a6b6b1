"""Mistakes of a model, from its prediction rows: those just made, or those that a run has kept.

The keys of a row tell what was predicted: a class or several labels, a tag of each word, a value, an answer, a choice.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import ne
from statistics import fmean
from typing import Any, TypeAlias

from bert_core.metrics import class_scores, confusion_matrix, ner_f1_by_type
from bert_core.metrics.spans import entity_spans

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
    sides = [[row["prediction"] for row in rows], [row["gold"] for row in rows]]
    if "words" in first:
        tags = sorted({tag for side in sides for some in side for tag in some})
        are_entities = all(tag == "O" or tag[:2] in ("B-", "I-") for tag in tags)
        return {"entities": [*_entities(*sides)]} if are_entities else {"tags": [*_tags(tags, *sides)]}
    if "exact_match" in first:
        return {"questions": [*_questions(rows)]}
    labels = [*first["probabilities"]] if isinstance(first.get("probabilities"), dict) else []
    if isinstance(first["prediction"], list) and labels:
        return {"classes": [*_labels(labels, *sides)]}
    if isinstance(first["prediction"], str) and isinstance(first["gold"], str):
        return _classes(labels, *sides, max_confusions)
    return {}


def _classes(
    labels: Sequence[str], predicted: Sequence[str], gold: Sequence[str], max_confusions: int | None
) -> dict[str, Table]:
    """`classes`: the scores of each; `confusions`: how many of each class (rows) were given each class."""
    found = {*predicted, *gold}
    names = labels if found <= {*labels} else sorted(found)
    number = {name: place for place, name in enumerate(names)}
    counts = confusion_matrix([number[name] for name in predicted], [number[name] for name in gold], len(names))
    scores = [{"label": name, **asdict(own)} for name, own in zip(names, class_scores(counts), strict=True)]
    if max_confusions is not None and len(names) > max_confusions:
        return {"classes": scores}
    heading = "gold" if "gold" not in names else "gold class"
    cells = (dict(zip(names, row, strict=True)) for row in counts.tolist())
    return {"classes": scores, "confusions": [{heading: name, **row} for name, row in zip(names, cells, strict=True)]}


def _labels(
    labels: Sequence[str], predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]
) -> Iterator[Mapping[str, Any]]:
    """Scores of each label, each a choice of its own."""
    for label in labels:
        counts = confusion_matrix([label in some for some in predicted], [label in some for some in gold], 2)
        yield {"label": label, **asdict(class_scores(counts)[1])}


def _tags(
    tags: Sequence[str], predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]
) -> Iterator[Mapping[str, Any]]:
    number = {tag: place for place, tag in enumerate(tags)}
    flat = [[number[tag] for some in side for tag in some] for side in (predicted, gold)]
    for tag, own in zip(tags, class_scores(confusion_matrix(*flat, len(tags))), strict=True):
        yield {"tag": tag, **asdict(own)}


def _entities(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> Iterator[Mapping[str, Any]]:
    """Scores of each type, with the number of gold entities."""
    support = Counter(kind for tags in gold for _, _, kind in entity_spans(tags))
    for kind, scores in ner_f1_by_type(predicted, gold).items():
        yield {"entity": kind, **scores, "support": support[kind]}


def _questions(rows: Sequence[PredictionRow]) -> Iterator[Mapping[str, Any]]:
    """Questions with and without an answer: how many were answered, rightly or not, and their scores."""
    for kind, is_answerable in (("with an answer", True), ("without an answer", False)):
        chosen = [row for row in rows if bool(row["gold"]) == is_answerable]
        if chosen:
            answered = sum(bool(row["prediction"]) for row in chosen)
            scores = {name: fmean(row[name] for row in chosen) for name in ("exact_match", "f1")}
            yield {"questions": kind, "number": len(chosen), "answered": answered, **scores}
