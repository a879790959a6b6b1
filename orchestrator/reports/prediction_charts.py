"""Errors of a model, from the predictions that its run has kept (`predictions.jsonl`): blocks of a page.

What a row holds tells what was predicted: a class, a tag of each word, a value, or an answer among right ones.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bert_core.metrics import class_scores, confusion_matrix, ner_f1_by_type
from bert_core.metrics.ner import entity_spans
from orchestrator.errors import InputError
from orchestrator.registry.groups.prediction_files import (
    ANSWER,
    CLASS,
    TAGS,
    VALUE,
    prediction_kind,
    read_predictions,
)
from orchestrator.reports.blocks import Block, Row, Table, Words
from orchestrator.reports.charts import count_matrix, predicted_values
from orchestrator.reports.mistakes import mistake_blocks

_MAX_CLASSES = 40
"""Classes of a matrix at most: more cannot be read."""


def prediction_blocks(path: str) -> list[Block]:
    """Charts and tables of a file of kept predictions; one sentence where the file cannot be read."""
    try:
        rows = read_predictions(path)
    except InputError as error:
        return [Words(str(error))]
    draw = _BLOCKS.get(prediction_kind(rows[0])) if rows else None
    return [*(draw(rows) if draw is not None else ()), *mistake_blocks(rows)]


def _class_blocks(rows: Sequence[Row]) -> Iterator[Block]:
    """Scores of each class, and which is taken for which."""
    names = sorted({str(row[key]) for row in rows for key in ("gold", "prediction")})
    numbers = {name: number for number, name in enumerate(names)}
    counts = confusion_matrix(
        [numbers[str(row["prediction"])] for row in rows], [numbers[str(row["gold"])] for row in rows], len(names)
    )
    if len(names) <= _MAX_CLASSES:
        yield count_matrix("Which class is taken for which", names, counts.tolist())
    scores = [{"class": name, **asdict(score)} for name, score in zip(names, class_scores(counts), strict=True)]
    yield Table(("class", "precision", "recall", "f1", "support"), scores)


def _entity_table(rows: Sequence[Row]) -> Iterator[Block]:
    """Scores of each type of entity."""
    gold = [row["gold"] for row in rows]
    scores = ner_f1_by_type([row["prediction"] for row in rows], gold)
    support = Counter(kind for tags in gold for _, _, kind in entity_spans(tags))
    found = [{"entity": kind, **scores[kind], "support": support[kind]} for kind in scores]
    yield Table(("entity", "precision", "recall", "f1", "support"), found)


def _value_chart(rows: Sequence[Row]) -> Iterator[Block]:
    """Predicted values beside the right ones."""
    yield predicted_values([row["gold"] for row in rows], [row["prediction"] for row in rows])


def _answer_table(rows: Sequence[Row]) -> Iterator[Block]:
    """Questions with and without an answer: how many were answered, and their scores."""
    lines = []
    for kind, is_answerable in (("with an answer", True), ("without an answer", False)):
        some = [row for row in rows if bool(row["gold"]) == is_answerable]
        if some:
            line: dict[str, Any] = {"questions": kind, "number": len(some)}
            line["answered"] = sum(bool(row["prediction"]) for row in some)
            line |= {name: sum(row[name] for row in some) / len(some) for name in ("exact_match", "f1")}
            lines.append(line)
    yield Table(("questions", "number", "answered", "exact_match", "f1"), lines)


_BLOCKS: Mapping[str | None, Callable[[Sequence[Row]], Iterator[Block]]] = {
    CLASS: _class_blocks,
    TAGS: _entity_table,
    VALUE: _value_chart,
    ANSWER: _answer_table,
}
"""Blocks of each kind of prediction that has its own, beside the mistakes."""
