"""Outputs to predictions, predictions to scores, a baseline, and a row per example to keep: for every task type."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_core.errors import DataError
from orchestrator.errors import TaskDataError
from orchestrator.results import Split
from orchestrator.specs.recipe import RecipeSpec
from orchestrator.storage import write_bytes
from orchestrator.tasks.features import Features
from orchestrator.tasks.options import TaskOptions
from orchestrator.tasks.task import Task
from orchestrator.tasks.types.base import Outputs, TaskDefinition


class NotFiniteError(DataError):
    """Outputs of a model that has diverged."""


def decode(
    task: TaskDefinition,
    features: Features[Any],
    examples: Sequence[Any],
    outputs: Outputs,
    options: TaskOptions | None = None,
) -> list[Any]:
    """A prediction of the task's type for each of the examples that the features were made of.

    Args:
        options: the type's own; those of a recipe that says nothing about them, when left out.

    Raises: DataError when the outputs do not fit the features, NotFiniteError when they are not finite.
    """
    if not np.isfinite(outputs).all():
        raise NotFiniteError("the outputs hold values that are not finite; the model has diverged, lower learning_rate")
    if options is None:
        options = task.type.options_type.of_recipe(RecipeSpec())
    return task.type.decode(task, features, examples, outputs, options)


def score(task: Task, split: Split, predictions: Sequence[Any]) -> dict[str, float]:
    """The task's scores over a split, as the official scripts count them; a prediction for each example, in order.

    Raises: TaskDataError when there are not as many.
    """
    examples = task.examples(split)
    if len(predictions) != len(examples):
        raise TaskDataError(f"{len(predictions)} predictions for {len(examples)} examples of {task.id} {split}")
    return task.type.score(task, examples, predictions)


def majority_baseline(task: Task, split: Split) -> dict[str, float]:
    """The scores of what can be predicted without reading the text, learned from the training split if there is one."""
    learned = task.examples("train" if "train" in task.files else split)
    return score(task, split, task.type.baseline(task, learned, task.examples(split)))


def prediction_rows(task: Task, split: Split, predictions: Sequence[Any]) -> list[dict[str, Any]]:
    """A JSON-ready record per example: `id`, `prediction`, `gold`, whether or how well they agree, and what is known
    of the model's doubt.
    """
    return [
        {"id": example.id, **task.type.row(task, example, prediction)}
        for example, prediction in zip(task.examples(split), predictions, strict=True)
    ]


def write_prediction_rows(path: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as JSONL, whole or not at all; returns the file's SHA-256."""
    return write_bytes(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
