"""The worst mistakes among kept predictions, with the text that they were made on: a table of a page.

What is shown is bounded, however long a text is: so many mistakes, so many characters of each cell.
"""

from collections.abc import Sequence
from typing import Any

from bert_core.metrics.ner import entity_spans
from orchestrator.reports.blocks import Block, Row, Table, Words

NUM_MISTAKES = 20
SHOWN_CHARACTERS = 300
_WORDS_BEFORE = 12
"""Words before the first mistaken one that are shown of a long sentence."""


def mistake_blocks(rows: Sequence[Row]) -> list[Block]:
    """The worst mistakes, worst first, each with its text where the predictions hold it; none where all are right."""
    wrong = [row for row in rows if row.get("correct") is False or row.get("exact_match") == 0.0]
    if not wrong:
        return []
    worst = sorted(wrong, key=_wrongness, reverse=True)[:NUM_MISTAKES]
    shown = [_shown(row) for row in worst]
    columns = list(dict.fromkeys(name for row in shown for name in row))
    counted = f"{len(wrong):,} of {len(rows):,} examples are predicted wrongly"
    more = f"; the worst {len(shown)} of them:" if len(wrong) > len(shown) else ":"
    return [Words(counted + more), Table(columns, shown)]


def _wrongness(row: Row) -> float:
    """Degree of a mistake: wrong words of a sentence, 1 - F1 of an answer, probability given to a wrong class."""
    if "words" in row:
        return float(sum(tag != gold for tag, gold in zip(row["prediction"], row["gold"], strict=False)))
    if "exact_match" in row:
        return 1.0 - float(row.get("f1") or 0.0)
    probabilities = row.get("probabilities")
    return float(probabilities.get(str(row.get("prediction")), 0.0)) if isinstance(probabilities, dict) else 0.0


def _shown(row: Row) -> dict[str, Any]:
    """Cells of one mistake, as text."""
    if "words" in row:
        first = next((at for at, (a, b) in enumerate(zip(row["prediction"], row["gold"], strict=False)) if a != b), 0)
        cells = {
            "text": _cut(_sentence(row["words"], first)),
            "gold": _cut(_entities(row["words"], row["gold"])),
            "prediction": _cut(_entities(row["words"], row["prediction"])),
            "wrong words": int(_wrongness(row)),
        }
    elif "exact_match" in row:
        answers = row.get("gold") or []
        cells = {
            **{name: _cut(str(row[name])) for name in ("question", "passage") if row.get(name)},
            "gold": _cut(" | ".join(dict.fromkeys(map(str, answers)))) if answers else "no answer",
            "prediction": _cut(str(row["prediction"])) if row["prediction"] else "no answer",
            "f1": row.get("f1"),
        }
    else:
        cells = {"gold": _cut(_joined(row.get("gold"))), "prediction": _cut(_joined(row.get("prediction")))}
    return {"id": row.get("id"), **cells}


def _sentence(words: Sequence[str], first_wrong: int) -> str:
    """The words of a sentence, those long before the first mistaken one left out."""
    begin = max(0, first_wrong - _WORDS_BEFORE)
    return ("… " if begin else "") + " ".join(map(str, words[begin:]))


def _entities(words: Sequence[str], tags: Sequence[str]) -> str:
    """The entities of a sentence by type and words: `PER Ada Lovelace; LOC London`."""
    spans = entity_spans(tags)
    return "; ".join(f"{kind} {' '.join(map(str, words[start:end]))}" for start, end, kind in spans) or "no entity"


def _joined(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
