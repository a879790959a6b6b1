"""Mistakes of a model, from the predictions that its run has kept (`predictions.jsonl`): blocks of a page.

The keys of a row tell what was predicted: a class or several, a tag of each word, a value, or an answer.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bert_core.metrics import class_scores, confusion_matrix, ner_f1_by_type
from bert_core.metrics.spans import entity_spans
from orchestrator.errors import InputError
from orchestrator.registry.group_comparison import read_predictions
from orchestrator.reports.blocks import Block, Row, Table, Words
from orchestrator.reports.charts import count_matrix, predicted_values
from orchestrator.significance.predictions import ANSWER, CLASS, TAGS, VALUE, prediction_kind

NUM_MISTAKES = 20
SHOWN_CHARACTERS = 300
"""Characters of a cell at most, however long a text is."""
_MAX_CLASSES = 40
"""Classes of a matrix at most: more cannot be read."""
_WORDS_BEFORE = 12
"""Words before the first wrong one that are shown of a long sentence."""
_TEXTS = {key: key for key in ("query", "text", "text_pair", "sentences", "question")} | {"text_pair": "second text"}
"""Keys under which a row has the texts of its example, and the heading of each."""


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


def mistake_blocks(rows: Sequence[Row]) -> list[Block]:
    """The worst mistakes, worst first, each with its text; none where all are right."""
    wrong = [row for row in rows if row.get("correct") is False or row.get("exact_match") == 0.0 or row.get("error")]
    if not wrong:
        return []
    shown = [_shown(row) for row in sorted(wrong, key=_wrongness, reverse=True)[:NUM_MISTAKES]]
    what, degree = ("values differ", "largest") if "error" in wrong[0] else ("examples are predicted wrongly", "worst")
    chosen = f"; the {degree} {len(shown)} of them" if len(wrong) > len(shown) else ""
    columns = list(dict.fromkeys(name for row in shown for name in row))
    return [Words(f"{len(wrong):,} of {len(rows):,} {what}{chosen}:"), Table(columns, shown)]


def _wrongness(row: Row) -> float:
    """Degree of a mistake: distance of a value, wrong words, 1 - F1 of an answer, probability of a wrong class.

    Of several labels it is the probability of the surest wrong one: given to a label that is not right, or kept from
    one that is.
    """
    if "error" in row:
        return abs(float(row["error"]))
    if "words" in row:
        return float(sum(tag != gold for tag, gold in zip(row["prediction"], row["gold"], strict=False)))
    if "exact_match" in row:
        return 1.0 - float(row.get("f1") or 0.0)
    given, predicted = row.get("probabilities"), row.get("prediction")
    if isinstance(predicted, list) and isinstance(given, dict):
        wrong = [name for name in given if (name in predicted) != (name in (row.get("gold") or []))]
        return max((given[name] if name in predicted else 1.0 - given[name] for name in wrong), default=0.0)
    return _probability(row) or 0.0


def _probability(row: Row) -> float | None:
    """Probability of the predicted class or choice; None where it is not known."""
    given, predicted = row.get("probabilities"), row.get("prediction")
    if isinstance(given, dict):
        return given.get(str(predicted))
    is_place = isinstance(given, list) and isinstance(predicted, int) and 0 <= predicted < len(given)
    return float(given[predicted]) if is_place else None  # type: ignore[index]


def _shown(row: Row) -> dict[str, Any]:
    """Cells of one mistake; texts are cut."""
    cells: dict[str, Any]
    if "words" in row:
        words, tags = row["words"], (row["prediction"], row["gold"])
        first = next((place for place, (a, b) in enumerate(zip(*tags, strict=False)) if a != b), 0)
        begin = max(0, first - _WORDS_BEFORE)
        cells = {"text": ("… " if begin else "") + " ".join(map(str, words[begin:]))}
        cells |= {key: _entities(words, row[key]) for key in ("gold", "prediction")}
        cells["wrong words"] = int(_wrongness(row))
    elif "exact_match" in row:
        answers = " | ".join(dict.fromkeys(map(str, row.get("gold") or [])))
        cells = {name: str(row[name]) for name in ("question", "passage") if row.get(name)}
        cells |= {"gold": answers or "no answer", "prediction": str(row["prediction"] or "no answer")}
        cells["f1"] = row.get("f1")
    else:
        cells = {heading: _label(row[key]) for key, heading in _TEXTS.items() if row.get(key)}
        if "error" in row:
            cells |= {key: row.get(key) for key in ("gold", "prediction", "error")}
        else:
            cells |= {key: _label(row.get(key), row.get("choices")) for key in ("gold", "prediction")}
            probability = _probability(row)
            cells |= {} if probability is None else {"probability": probability}
    return {"id": row.get("id"), **{name: _cut(value) for name, value in cells.items()}}


def _label(value: Any, choices: Any = None) -> str:
    """A class or several as text; of a choice its number, from 0, and its text where that was kept."""
    if isinstance(value, int) and isinstance(choices, list) and 0 <= value < len(choices):
        return f"{value}: {choices[value]}"
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def _entities(words: Sequence[str], tags: Sequence[str]) -> str:
    """The entities of a sentence by type and words: `PER Ada Lovelace; LOC London`."""
    spans = entity_spans(tags)
    return "; ".join(f"{kind} {' '.join(map(str, words[start:end]))}" for start, end, kind in spans) or "no entity"


def _cut(value: Any) -> Any:
    is_long = isinstance(value, str) and len(value) > SHOWN_CHARACTERS
    return value[: SHOWN_CHARACTERS - 1] + "…" if is_long else value
