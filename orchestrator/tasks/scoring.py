"""Outputs to predictions, predictions to scores, a baseline, and a row per example to keep: for every task type.

A run keeps the beginning of each text, so that its mistakes can be read wherever its record is; a person's own file has
the whole text.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_core.errors import DataError
from orchestrator.base.errors import TaskDataError
from orchestrator.base.results import Split
from orchestrator.storage import write_bytes
from orchestrator.tasks.features import Features
from orchestrator.tasks.task import Task
from orchestrator.tasks.types.base import Outputs, TaskDefinition, TaskOptions

KEPT_CHARACTERS = 500
"""Characters of a text that a run keeps; of a list of texts, of all together."""


class NotFiniteError(DataError):
    """Outputs of a model that has diverged."""


def decode(
    task: TaskDefinition, features: Features[Any], examples: Sequence[Any], outputs: Outputs, options: TaskOptions
) -> list[Any]:
    """A prediction of the task's type for each of the examples that the features were made of.

    Raises: DataError when the outputs do not fit the features, NotFiniteError when they are not finite.
    """
    return task.target.decode(task, examples, _gather(task, features, outputs, options), options)


def decode_fitted(
    task: TaskDefinition, features: Features[Any], examples: Sequence[Any], outputs: Outputs, options: TaskOptions
) -> tuple[TaskOptions, list[Any]]:
    """The options fitted to labeled examples, and the predictions decoded with them; raises as `decode` does."""
    rows = _gather(task, features, outputs, options)
    fitted = task.target.fit(task, examples, rows, options)
    return fitted, task.target.decode(task, examples, rows, fitted)


def _gather(task: TaskDefinition, features: Features[Any], outputs: Outputs, options: TaskOptions) -> Any:
    if not np.isfinite(outputs).all():
        raise NotFiniteError("the outputs hold values that are not finite; the model has diverged, lower learning_rate")
    return task.type.gather(features, outputs, options)


def score(task: Task, split: Split, predictions: Sequence[Any]) -> dict[str, float]:
    """The task's scores over a split, as the official scripts count them; a prediction for each example, in order.

    Raises: TaskDataError when there are not as many.
    """
    examples = task.examples(split)
    if len(predictions) != len(examples):
        raise TaskDataError(f"{len(predictions)} predictions for {len(examples)} examples of {task.id} {split}")
    return task.target.score(task, examples, predictions)


def majority_baseline(task: Task, split: Split) -> dict[str, float]:
    """Scores of predictions that do not read the text, learned from the training split if there is one."""
    learned = task.examples("train" if "train" in task.files else split)
    return score(task, split, task.target.baseline(task, learned, task.examples(split)))


def prediction_rows(
    task: Task, split: Split, predictions: Sequence[Any], *, max_characters: int | None = None
) -> list[dict[str, Any]]:
    """A JSON-ready record per example: `id`, the inputs, `prediction`, `gold`, how well they agree, the confidence.

    Args:
        max_characters: length to which inputs are cut; rows of words and of questions have their inputs already and
            stay as they are. None keeps whole inputs.
    """
    rows = []
    for example, prediction in zip(task.examples(split), predictions, strict=True):
        said, row = task.type.inputs(example), task.target.row(task, example, prediction)
        if max_characters is not None:
            said = {} if said.keys() & row.keys() else {key: _cut(said[key], max_characters) for key in said}
        rows.append({"id": example.id, **said, **row})
    return rows


def write_prediction_rows(path: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as JSONL, whole or not at all; returns the file's SHA-256."""
    return write_bytes(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def kept_rows(task: Task, split: Split, predictions: Sequence[Any]) -> list[dict[str, Any]]:
    """The prediction rows that a run keeps, with the beginning of each text."""
    return prediction_rows(task, split, predictions, max_characters=KEPT_CHARACTERS)


def _cut(said: Any, room: int) -> Any:
    """A text cut to a number of characters, or a list of texts cut to as many together."""
    if isinstance(said, str):
        return said if len(said) <= room else said[: room - 1] + "…"
    texts: list[str] = []
    for text in said:
        if room <= 0:
            return [*texts, "…"]
        texts.append(_cut(str(text), room))
        room -= len(texts[-1])
    return texts
