"""A model against a task's split: outputs, predictions, scores."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from bert_core.constants import AskedPrecision
from orchestrator.base.errors import SpecError
from orchestrator.base.results import Split
from orchestrator.finetuning.heads import HEADS, HeadModel
from orchestrator.finetuning.logits import TokenBudget, compute_logits
from orchestrator.finetuning.model_folder import FineTunedModel, load_fine_tuned
from orchestrator.storage import local_copy
from orchestrator.tasks.feature_cache import build_features, prepare_features
from orchestrator.tasks.features import Features
from orchestrator.tasks.scoring import decode, decode_fitted, score
from orchestrator.tasks.task import Task
from orchestrator.tasks.types.base import TaskDefinition, TaskOptions


class ScoredSplit(NamedTuple):
    """A split as a model predicts it."""

    metrics: dict[str, float]
    predictions: list[Any]
    """One of the task type's own class for each example."""
    options: TaskOptions
    """Options that the predictions were decoded with."""
    task: Task
    """The task with its labels in the order of the model's outputs, by which predictions name their probabilities."""


def score_model(
    model: HeadModel,
    task: Task,
    features: Features[Any],
    split: Split,
    options: TaskOptions,
    precision: AskedPrecision = "fp32",
    calibrates: bool = True,
    budget: TokenBudget | None = None,
) -> ScoredSplit:
    """Predict and score a split.

    Args:
        calibrates: whether the options are fitted to the labels of the split first.
        budget: as `compute_logits` takes it.
    """
    outputs, examples = compute_outputs(model, features, precision, budget=budget), task.examples(split)
    if calibrates:
        options, predictions = decode_fitted(task, features, examples, outputs, options)
    else:
        predictions = decode(task, features, examples, outputs, options)
    return ScoredSplit(score(task, split, predictions), predictions, options, task)


def compute_outputs(
    model: HeadModel,
    features: Features[Any],
    precision: AskedPrecision,
    batch_size: int | None = None,
    budget: TokenBudget | None = None,
) -> NDArray[Any]:
    """The model's outputs for a split in the form that `decode` takes."""
    logits = compute_logits(model, features, precision, batch_size, budget=budget)
    return HEADS[features.head].outputs(model, features, logits)


def evaluate_model(
    folder: str,
    task: Task,
    split: Split,
    batch_size: int,
    cache: str,
    device: torch.device | str = "cpu",
    precision: AskedPrecision = "fp32",
) -> ScoredSplit:
    """Scores and predictions of a model folder on a split; a stored threshold for "no answer" is used.

    Raises: SpecError when the model's head or labels are not the task's; CheckpointError, TaskDataError.
    """
    fine_tuned = load_fine_tuned(local_copy(folder))
    record = fine_tuned.record
    as_model = with_labels_of(fine_tuned.task, task, folder)
    HEADS[task.head].set_objective(fine_tuned.model, task.objective)
    fine_tuned.model.to(device)
    features = prepare_features(as_model, split, fine_tuned.tokenizer, record.options, cache)
    outputs = compute_outputs(fine_tuned.model, features, precision, batch_size)
    # A model from elsewhere, whose task has no id, does not say whether it has learned to give no answer.
    unanswerable = record.task.unanswerable if record.task.id else task.unanswerable
    decoded = replace(as_model, unanswerable=unanswerable)
    predictions = decode(decoded, features, as_model.examples(split), outputs, record.options)
    return ScoredSplit(score(task, split, predictions), predictions, record.options, as_model)


def predict_examples(
    fine_tuned: FineTunedModel,
    examples: Sequence[Any],
    batch_size: int = 64,
    precision: AskedPrecision = "fp32",
    budget: TokenBudget | None = None,
    counts: Counter[str] | None = None,
) -> list[Any]:
    """Predictions for examples of the model's task type that belong to no split, labeled or not.

    Args:
        counts: the counts of the examples' windows are added to it, `num_truncated` among them.
    """
    record, task = fine_tuned.record, fine_tuned.task
    features = build_features(task, examples, fine_tuned.tokenizer, record.options)
    if counts is not None:
        counts.update(features.counts)
    outputs = compute_outputs(fine_tuned.model, features, precision, batch_size, budget)
    return decode(task, features, examples, outputs, record.options)


def with_labels_of(known: TaskDefinition, task: Task, folder: str) -> Task:
    """The task with its labels in the order of a model's outputs, and its columns as the model has learned them; a
    model with nameless labels takes the task's.

    Raises: SpecError when the model has another head, other labels or other columns.
    """
    if known.head != task.head:
        raise SpecError(
            f"{folder} is a model for {known.head}, task {task.id} needs one for {task.head}; "
            f"choose a model fine-tuned for {task.head}"
        )
    columns = known.columns
    if columns.names != task.columns.names:
        raise SpecError(
            f"{folder} reads the columns {', '.join(columns.names) or 'none'} beside the text; task {task.id} has "
            f"{', '.join(task.columns.names) or 'none'}: "
            "name the same in task.numerical_columns and categorical_columns"
        )
    task = replace(task, columns=columns)
    if not (task.type.has_labels and known.type.has_labels):
        return task
    labels = known.labels
    if len(labels) == len(task.labels) and all(label == f"LABEL_{n}" for n, label in enumerate(labels)):
        return task
    if set(labels) != set(task.labels):
        raise SpecError(
            f"{folder} knows the labels {', '.join(labels)}; task {task.id} has {', '.join(task.labels)}: "
            "evaluate it on the task that it was fine-tuned for"
        )
    return replace(task, labels=labels)
