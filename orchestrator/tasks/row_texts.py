"""Rows of predictions as files keep them: what each example says, what was predicted, and what is right.

A run keeps the beginning of each text, so that its mistakes can be read wherever its record is; a person's own file has
the whole text.
"""

from collections.abc import Sequence
from typing import Any

from orchestrator.results import Split
from orchestrator.tasks.scoring import prediction_rows
from orchestrator.tasks.task import Task

KEPT_CHARACTERS = 500
"""Characters of a text that a run keeps; of a list of texts, of all together."""


def rows_with_texts(
    task: Task, split: Split, predictions: Sequence[Any], *, max_characters: int | None = None
) -> list[dict[str, Any]]:
    """A JSON-ready record per example: `id`, what the example says, then what `prediction_rows` tells of it.

    Args:
        max_characters: length to which texts are cut, each of which then ends in "…"; a row that says by itself what
            its example is, as those of words and of questions do, is left as it is. None keeps all that is said.
    """
    rows = []
    for example, row in zip(task.examples(split), prediction_rows(task, split, predictions), strict=True):
        said = task.type.said(example)
        if max_characters is not None:
            said = {} if said.keys() & row.keys() else {key: _cut(said[key], max_characters) for key in said}
        rows.append({"id": row["id"], **said, **row})
    return rows


def kept_rows(task: Task, split: Split, predictions: Sequence[Any]) -> list[dict[str, Any]]:
    """The records that a run keeps of its predictions, with the beginning of each text."""
    return rows_with_texts(task, split, predictions, max_characters=KEPT_CHARACTERS)


def _cut(said: Any, room: int) -> Any:
    """A text cut to so many characters, or a list of texts that have as many together."""
    if isinstance(said, str):
        return said if len(said) <= room else said[: room - 1] + "…"
    texts: list[str] = []
    for text in said:
        if room <= 0:
            return [*texts, "…"]
        texts.append(_cut(str(text), room))
        room -= len(texts[-1])
    return texts
