"""Rows of predictions as files keep them: what each example says, what was predicted, and what is right.

A run keeps the beginning of each text, so that its mistakes can be read wherever its record is; a person's own file has
the whole text. Which texts a row has is no part of what was predicted.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from orchestrator.results import Split
from orchestrator.storage import read_bytes
from orchestrator.tasks.scoring import prediction_rows
from orchestrator.tasks.task import Task
from orchestrator.tasks.types import TASK_TYPES

KEPT_CHARACTERS = 500
"""Characters of a text that a run keeps; of a list of texts, of all together."""
_TEXTS = frozenset(key for task_type in TASK_TYPES.values() for key in task_type.request_keys) | {"passage"}
"""Keys of a row under which its example speaks; `passage` is the part of a context that a question's row has."""


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


def digest_without_texts(path: str) -> str:
    """SHA-256 of a file of predictions without what its examples say: two versions' rows compare by what was predicted.

    Raises: FileNotFoundError; ValueError for a file that holds something else.
    """
    digest = hashlib.sha256()
    for line in read_bytes(path).decode().split("\n"):
        if line:
            row = {key: value for key, value in json.loads(line).items() if key not in _TEXTS}
            digest.update(json.dumps(row, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


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
