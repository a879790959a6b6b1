"""A model against a task's split: logits, predictions, scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from bert_core.heads import BertForTokenClassification
from orchestrator.errors import SpecError
from orchestrator.finetuning.dual_encoder import DualEncoder
from orchestrator.finetuning.heads import HeadModel
from orchestrator.finetuning.logits import compute_logits, decode_tags
from orchestrator.finetuning.model_folder import FineTunedModel, load_fine_tuned
from orchestrator.results import Split
from orchestrator.specs.network import Precision
from orchestrator.storage import local_copy
from orchestrator.tasks import (
    AnswerPrediction,
    Example,
    Features,
    Outputs,
    Prediction,
    Task,
    best_null_threshold,
    build_features,
    decode,
    prepare_features,
    score,
    with_null_threshold,
)


@dataclass(frozen=True)
class Scored:
    """A split as a model predicts it."""

    metrics: Mapping[str, float]
    predictions: Sequence[Prediction]
    null_threshold: float = 0.0


def score_model(
    model: HeadModel,
    task: Task,
    features: Features,
    split: Split,
    max_answer_length: int,
    precision: Precision = "fp32",
    batch_size: int = 64,
    null_threshold: float | None = None,
) -> Scored:
    """Predict and score a split. Where questions may be unanswerable and no threshold is given, it is tuned here."""
    outputs = compute_outputs(model, features, precision, batch_size)
    predictions = decode(task, features, outputs, max_answer_length=max_answer_length)
    if not task.unanswerable:
        return Scored(score(task, split, predictions), predictions)
    answers = cast(list[AnswerPrediction], predictions)
    if null_threshold is None:
        null_threshold = best_null_threshold(task, split, answers)
    answers = with_null_threshold(answers, null_threshold)
    return Scored(score(task, split, answers), answers, null_threshold)


def compute_outputs(model: HeadModel, features: Features, precision: Precision, batch_size: int) -> Outputs:
    """The model's outputs in the form that `decode` takes."""
    logits = compute_logits(model, features, precision, batch_size)
    if isinstance(model, DualEncoder):
        return model.compare(logits)
    if isinstance(model, BertForTokenClassification) and model.crf is not None:
        return decode_tags(model, features, logits)
    return (logits[:, 0], logits[:, 1]) if features.head == "qa" else logits


def evaluate_model(
    folder: str, task: Task, split: Split, batch_size: int, cache: str
) -> tuple[dict[str, float], list[Prediction]]:
    """Scores and predictions of a model folder on a split, in fp32; a stored threshold for "no answer" is used.

    Raises: SpecError when the model's head or labels are not the task's; CheckpointError, TaskDataError.
    """
    fine_tuned = load_fine_tuned(local_copy(folder))
    record = fine_tuned.record
    as_model = with_labels_of(fine_tuned, task, folder)
    if isinstance(fine_tuned.model, DualEncoder) and task.objective is not None:
        fine_tuned.model.set_objective(task.objective)
    features = prepare_features(
        as_model,
        split,
        fine_tuned.tokenizer,
        max_seq_length=record.max_seq_length,
        doc_stride=record.doc_stride,
        max_query_length=record.max_query_length,
        context=record.context,
        cache=cache,
    )
    outputs = compute_outputs(fine_tuned.model, features, "fp32", batch_size)
    predictions = decode(
        as_model,
        features,
        outputs,
        max_answer_length=record.max_answer_length,
        null_threshold=record.null_threshold,
    )
    return dict(score(task, split, predictions)), predictions


def predict_examples(fine_tuned: FineTunedModel, examples: Sequence[Example], batch_size: int = 64) -> list[Prediction]:
    """What the model says about examples that belong to no split, labeled or not."""
    record, task = fine_tuned.record, fine_tuned.task()
    features = build_features(
        record.head,
        task.labels,
        examples,
        fine_tuned.tokenizer,
        max_seq_length=record.max_seq_length,
        doc_stride=record.doc_stride,
        max_query_length=record.max_query_length,
        context=record.context,
        columns=record.columns,
    )
    return decode(
        task,
        features,
        compute_outputs(fine_tuned.model, features, "fp32", batch_size),
        examples=examples,
        max_answer_length=record.max_answer_length,
        null_threshold=record.null_threshold,
    )


def with_labels_of(fine_tuned: FineTunedModel, task: Task, folder: str) -> Task:
    """The task with its labels in the order of the model's outputs, and its columns as the model has learnt them; a
    model with nameless labels takes the task's.

    Raises: SpecError when the model has another head, other labels or other columns.
    """
    head = fine_tuned.record.head
    if head != task.head:
        raise SpecError(
            f"{folder} is a model for {head}, task {task.id} needs one for {task.head}; "
            f"choose a model fine-tuned for {task.head}"
        )
    columns = fine_tuned.record.columns
    if columns.names != task.columns.names:
        raise SpecError(
            f"{folder} reads the columns {', '.join(columns.names) or 'none'} beside the text; task {task.id} has "
            f"{', '.join(task.columns.names) or 'none'}: "
            "name the same in task.numerical_columns and categorical_columns"
        )
    task = replace(task, columns=columns)
    if task.predicts in ("multiple_choice", "regression", "qa", "retrieval"):
        return task
    labels = fine_tuned.labels
    if len(labels) == len(task.labels) and all(label == f"LABEL_{n}" for n, label in enumerate(labels)):
        return task
    if set(labels) != set(task.labels):
        raise SpecError(
            f"{folder} knows the labels {', '.join(labels)}; task {task.id} has {', '.join(task.labels)}: "
            "evaluate it on the task that it was fine-tuned for"
        )
    return replace(task, labels=labels)
