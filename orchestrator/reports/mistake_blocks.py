"""Mistakes of a model, from the predictions that its run has kept (`predictions.jsonl`): blocks of a page.

The keys of a row tell what was predicted: a class or several, a tag of each word, a value, or an answer.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from bert_core.metrics import entity_spans
from orchestrator.base.errors import InputError
from orchestrator.registry.group_comparison import read_predictions
from orchestrator.reports.charts import count_matrix, predicted_values
from orchestrator.reports.page_blocks import Block, Row, Table, Words
from orchestrator.significance.predictions import VALUE, prediction_kind
from orchestrator.tasks.mistakes import breakdown, predicted_probability, worst_mistakes, wrongness

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
    return [*_score_blocks(rows), *mistake_blocks(rows)]


def _score_blocks(rows: Sequence[Row]) -> Iterator[Block]:
    """Predicted and gold values, or classes; scores by class, tag, entity type or kind of question."""
    if rows and prediction_kind(rows[0]) == VALUE:
        yield predicted_values([row["gold"] for row in rows], [row["prediction"] for row in rows])
    tables = breakdown(rows, _MAX_CLASSES)
    if confusions := tables.pop("confusions", None):
        names = list(confusions[0])[1:]
        counts = [[row[name] for name in names] for row in confusions]
        yield count_matrix("Which class is taken for which", names, counts)
    yield from (Table(list(table[0]), table) for table in tables.values() if table)


def mistake_blocks(rows: Sequence[Row]) -> list[Block]:
    """The worst mistakes, worst first, each with its text; none where all are right."""
    wrong = worst_mistakes(rows)
    if not wrong:
        return []
    shown = list(map(_shown, wrong[:NUM_MISTAKES]))
    what, degree = ("values differ", "largest") if "error" in wrong[0] else ("examples are predicted wrongly", "worst")
    chosen = f"; the {degree} {len(shown)} of them" if len(wrong) > len(shown) else ""
    columns = list(dict.fromkeys(name for row in shown for name in row))
    return [Words(f"{len(wrong):,} of {len(rows):,} {what}{chosen}:"), Table(columns, shown)]


def _shown(row: Row) -> dict[str, Any]:
    """Cells of one mistake; texts are cut."""
    cells: dict[str, Any]
    if "words" in row:
        words, tags = row["words"], (row["prediction"], row["gold"])
        first = next((place for place, (a, b) in enumerate(zip(*tags, strict=False)) if a != b), 0)
        begin = max(0, first - _WORDS_BEFORE)
        cells = {"text": ("… " if begin else "") + " ".join(map(str, words[begin:]))}
        cells |= {key: _entities(words, row[key]) for key in ("gold", "prediction")}
        cells["wrong words"] = int(wrongness(row))
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
            probability = predicted_probability(row)
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
