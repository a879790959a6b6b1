"""The worst mistakes among kept predictions, with the text that they were made on: a table of a page.

Of a value, which is never just right or wrong, they are the largest differences. What is shown is bounded, however long
a text is: so many mistakes, so many characters of each cell.
"""

from collections.abc import Sequence
from typing import Any

from bert_core.metrics.ner import entity_spans
from orchestrator.reports.blocks import Block, Row, Table, Words

NUM_MISTAKES = 20
SHOWN_CHARACTERS = 300
_WORDS_BEFORE = 12
"""Words before the first mistaken one that are shown of a long sentence."""
_TEXTS = {
    "query": "query",
    "text": "text",
    "text_pair": "second text",
    "sentences": "sentences",
    "words": "text",
    "question": "question",
}
"""Keys under which a row says what its example is, and the heading of each; of words and questions more is shown."""
_WITHOUT_TEXTS = (
    "Their texts are not here: the version that made this run kept its predictions without them. "
    "`orchestrator evaluate RUN TASK --errors 20` reads the task's files again and shows mistakes with their texts."
)


def mistake_blocks(rows: Sequence[Row]) -> list[Block]:
    """The worst mistakes, worst first, each with its text where the predictions hold it; none where all are right."""
    wrong = [row for row in rows if _is_wrong(row)]
    if not wrong:
        return []
    worst = sorted(wrong, key=_wrongness, reverse=True)[:NUM_MISTAKES]
    shown = [_shown(row) for row in worst]
    columns = list(dict.fromkeys(name for row in shown for name in row))
    what, degree = ("values differ", "largest") if "error" in wrong[0] else ("examples are predicted wrongly", "worst")
    counted = f"{len(wrong):,} of {len(rows):,} {what}"
    chosen = f"; the {degree} {len(shown)} of them" if len(wrong) > len(shown) else ""
    has_texts = any(row.get(key) for row in worst for key in _TEXTS)
    return [Words(counted + chosen + (":" if has_texts else f". {_WITHOUT_TEXTS}")), Table(columns, shown)]


def _is_wrong(row: Row) -> bool:
    """Whether a prediction is none of the right ones; of a value, whether it differs at all."""
    return row.get("correct") is False or row.get("exact_match") == 0.0 or bool(row.get("error"))


def _wrongness(row: Row) -> float:
    """Degree of a mistake: wrong words, 1 - F1 of an answer, distance of a value, probability given to a wrong class.

    Of several labels it is the probability of the surest one that is wrong: given to a label that is not right, or kept
    from one that is.
    """
    if "error" in row:
        return abs(float(row["error"]))
    if "words" in row:
        return float(sum(tag != gold for tag, gold in zip(row["prediction"], row["gold"], strict=False)))
    if "exact_match" in row:
        return 1.0 - float(row.get("f1") or 0.0)
    given, predicted = row.get("probabilities"), row.get("prediction")
    if isinstance(predicted, list) and isinstance(given, dict):
        gold = row.get("gold") or []
        wrong = [name for name in given if (name in predicted) != (name in gold)]
        return max((given[name] if name in predicted else 1.0 - given[name] for name in wrong), default=0.0)
    return _probability(row) or 0.0


def _probability(row: Row) -> float | None:
    """Probability that was given to the predicted class or choice; None where it is not known."""
    given, predicted = row.get("probabilities"), row.get("prediction")
    if isinstance(given, dict):
        value = given.get(str(predicted))
        return None if value is None else float(value)
    is_place = isinstance(given, list) and isinstance(predicted, int) and 0 <= predicted < len(given)
    return float(given[predicted]) if is_place else None  # type: ignore[index]


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
    elif "error" in row:
        cells = {**_texts(row), **{key: row.get(key) for key in ("gold", "prediction", "error")}}
    else:
        probability = _probability(row)
        cells = {
            **_texts(row),
            **{key: _cut(_label(row, key)) for key in ("gold", "prediction")},
            **({} if probability is None else {"probability": probability}),
        }
    return {"id": row.get("id"), **cells}


def _texts(row: Row) -> dict[str, str]:
    """Texts of an example by the heading of their column; none where the run kept no texts."""
    return {heading: _cut(_joined(row[key])) for key, heading in _TEXTS.items() if row.get(key)}


def _label(row: Row, key: str) -> str:
    """A class or several as text; of a choice its number, from 0, and what it says where that was kept."""
    value, choices = row.get(key), row.get("choices")
    if isinstance(value, int) and isinstance(choices, list) and 0 <= value < len(choices):
        return f"{value}: {choices[value]}"
    return _joined(value) if value != [] else "none"


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
