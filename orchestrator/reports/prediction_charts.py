"""Errors of a model, from the predictions that its run has kept (`predictions.jsonl`): blocks of a page.

What a row holds tells what was predicted: a class, a tag of each word, a value, or an answer among right ones.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bert_core.metrics import class_scores, confusion_matrix, ner_f1_by_type
from bert_core.metrics.ner import entity_spans
from orchestrator.errors import OrchestratorError
from orchestrator.reports.blocks import Block, Row, Table, Words
from orchestrator.reports.charts import count_matrix, predicted_values
from orchestrator.reports.mistakes import mistake_blocks
from orchestrator.storage import read_bytes

_MAX_CLASSES = 40
"""Classes of a matrix at most: more cannot be read."""


def prediction_blocks(path: str) -> list[Block]:
    """Charts and tables of a file of kept predictions; one sentence where the file cannot be read."""
    try:
        rows = [json.loads(line) for line in read_bytes(path).decode().split("\n") if line.strip()]
    except (OSError, OrchestratorError, ValueError) as error:
        return [Words(f"The predictions at {path} cannot be read: {error}")]
    if not rows:
        return []
    gold, predicted = rows[0].get("gold"), rows[0].get("prediction")
    if isinstance(gold, str) and isinstance(predicted, str):
        return [*_class_blocks(rows), *mistake_blocks(rows)]
    if "words" in rows[0]:
        return [_entity_table(rows), *mistake_blocks(rows)]
    if isinstance(gold, int | float) and isinstance(predicted, int | float):
        chart = predicted_values([row["gold"] for row in rows], [row["prediction"] for row in rows])
        return [chart, *mistake_blocks(rows)]
    if "exact_match" in rows[0]:
        return [_answer_table(rows), *mistake_blocks(rows)]
    return mistake_blocks(rows)


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


def _entity_table(rows: Sequence[Row]) -> Block:
    """Scores of each type of entity."""
    gold = [row["gold"] for row in rows]
    scores = ner_f1_by_type([row["prediction"] for row in rows], gold)
    support = Counter(kind for tags in gold for _, _, kind in entity_spans(tags))
    found = [{"entity": kind, **scores[kind], "support": support[kind]} for kind in scores]
    return Table(("entity", "precision", "recall", "f1", "support"), found)


def _answer_table(rows: Sequence[Row]) -> Block:
    """Questions with and without an answer: how many were answered, and their scores."""
    lines = []
    for kind, is_answerable in (("with an answer", True), ("without an answer", False)):
        some = [row for row in rows if bool(row["gold"]) == is_answerable]
        if some:
            line: dict[str, Any] = {"questions": kind, "number": len(some)}
            line["answered"] = sum(bool(row["prediction"]) for row in some)
            line |= {name: sum(row[name] for row in some) / len(some) for name in ("exact_match", "f1")}
            lines.append(line)
    return Table(("questions", "number", "answered", "exact_match", "f1"), lines)
