"""Files of predictions that runs kept, a row for each example: read and checked here, for pages and for comparisons."""

import json
import re
from collections.abc import Mapping
from typing import Any

from orchestrator.errors import InputError, OrchestratorError
from orchestrator.storage import read_bytes

PredictionRow = Mapping[str, Any]
CLASS, TAGS, VALUE, ANSWER, OTHER = "class", "list of tags", "value", "answer", "list or choice"
"""Kinds of predictions, in words."""
_TAG = re.compile(r"O|[BI]-.+", re.DOTALL)


def read_predictions(path: str) -> list[PredictionRow]:
    """Rows of a file of predictions, all of one kind.

    Raises: InputError where the file is not there, or a line of it is no prediction, which is named.
    """
    rows: list[PredictionRow] = []
    kind = None
    try:
        for number, line in enumerate(read_bytes(path).decode().split("\n"), start=1):
            if line.strip():
                rows.append(json.loads(line))
                kind = _checked_kind(rows[-1], kind, number)
    except (OSError, ValueError, OrchestratorError) as error:
        raise InputError(f"The predictions at {path} cannot be read: {error}") from error
    return rows


def prediction_kind(row: Any) -> str | None:
    """Kind of prediction that a row says it is: CLASS, TAGS, VALUE, ANSWER or OTHER; None for what is none."""
    if not isinstance(row, dict) or not {"prediction", "gold"} <= row.keys() or not _is_sound(row):
        return None
    predicted, gold = row["prediction"], row["gold"]
    if "words" in row:
        has_tags = all(_are_texts(side) and all(map(_TAG.fullmatch, side)) for side in (predicted, gold))
        return TAGS if has_tags and _are_texts(row["words"]) else None
    if "exact_match" in row:
        has_scores = all(_is_number(row.get(name)) for name in ("exact_match", "f1"))
        return ANSWER if has_scores and isinstance(predicted, str) and isinstance(gold, list) else None
    if isinstance(predicted, str) and isinstance(gold, str):
        return CLASS
    # The place of a choice is a number, too, but right or wrong.
    return VALUE if _is_number(predicted) and _is_number(gold) and "correct" not in row else OTHER


def _checked_kind(row: Any, before: str | None, number: int) -> str:
    """Kind of a line's prediction. Raises: InputError where it is none, or not of the kind of those before it."""
    kind = prediction_kind(row)
    if kind is None:
        raise InputError(f"line {number} is no prediction beside what is right, in a form that a task keeps")
    if before is not None and kind != before:
        raise InputError(f"line {number} predicts a {kind}, and those before it a {before}")
    return kind


def _is_sound(row: Mapping[str, Any]) -> bool:
    """Whether the parts that every kind may have are what they should be."""
    given = row.get("probabilities", ())
    numbers = [*(given.values() if isinstance(given, dict) else given if isinstance(given, list | tuple) else [None])]
    items = [item for side in ("prediction", "gold") if isinstance(row[side], list) for item in row[side]]
    return (
        all(map(_is_number, [*numbers, row.get("error", 0)]))
        and all(isinstance(item, str | int | float) for item in items)
        and isinstance(row.get("id", ""), str | int)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
