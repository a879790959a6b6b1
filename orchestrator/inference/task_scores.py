"""A model's scores on a split of a task, and its errors: scores of each class, the worst mistakes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_core.constants import AskedPrecision
from orchestrator.base.errors import InputError
from orchestrator.base.results import EvaluationResult, Split
from orchestrator.cluster.torch_devices import choose_device
from orchestrator.finetuning.evaluation import evaluate_model
from orchestrator.finetuning.model_folder import load_task_definition
from orchestrator.inference.searching import INDEXES, Reranking, rank_queries
from orchestrator.storage import exists, join, local_copy
from orchestrator.tasks.catalogue import KNOWN_TASKS
from orchestrator.tasks.mistakes import breakdown, worst_mistakes, wrongness
from orchestrator.tasks.scoring import prediction_rows, score, write_prediction_rows
from orchestrator.tasks.table_files import column_names, table_name
from orchestrator.tasks.task import Task
from orchestrator.tasks.text_files import BadRecords

_DATA_FIELDS = {"folder", "files", "head"}
"""Fields of a task whose overrides describe other data than the model's own."""
_OF_OTHER_FILES = {"folder", "split", "max_train_examples", "max_validation_examples"}
"""Fields of the task that a model was fine-tuned on which say nothing about another file."""


@dataclass(frozen=True)
class Scoring:
    """A model, and the split of a task that it is scored on."""

    folder: str
    """Folder of the model."""
    task: Task
    """Loaded; its split is read once."""
    split: Split
    storage: str
    """Place where tokenized examples and document indexes are kept."""
    batch_size: int = 64
    """Examples of a forward pass."""
    predictions: str | None = None
    """JSONL file for a prediction of each example."""
    precision: AskedPrecision = "auto"
    """Arithmetic of the forward pass, of a reranker's too."""
    reranking: Reranking | None = None
    """Model that scores the first hits of a retrieval task again, and how."""


@dataclass(frozen=True)
class ErrorAnalysis:
    """A model's predictions on a split, taken apart."""

    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    """Rows by what they are about: `classes`, `confusions`; which there are depends on the task's type."""
    mistakes: Sequence[Mapping[str, Any]]
    """The worst mistakes, worst first: what the example says, `prediction`, `gold` and `wrongness`."""
    num_mistakes: int
    """Number of all mistakes."""


def evaluate(
    scoring: Scoring, device: str = "cpu", on_progress: Callable[[str], None] = lambda line: None
) -> EvaluationResult:
    """Score a model as `score_split` does; the predictions stay where they were made."""
    return score_split(scoring, device, on_progress)[0]


def score_split(
    scoring: Scoring, device: str, on_progress: Callable[[str], None]
) -> tuple[EvaluationResult, Task, Sequence[Any]]:
    """Score a model; its predictions go to a file where one is named.

    Args:
        device: where the models compute, `cpu` or `cuda`.

    Returns: the result, the task with the model's labels, and a prediction for each example.
    """
    folder, task, split, precision = scoring.folder, scoring.task, scoring.split, scoring.precision
    if scoring.reranking is not None:
        check_reranks(task)
    predictions: Sequence[Any]
    counts: dict[str, int] = {}
    if task.type.is_searched:
        cache = join(scoring.storage, INDEXES)
        predictions, counts = rank_queries(
            folder, task, split, scoring.reranking, on_progress, cache, device, precision
        )
        metrics = score(task, split, predictions)
    else:
        cache, chosen = join(scoring.storage, "tasks"), choose_device(device, precision=precision)
        scored = evaluate_model(folder, task, split, scoring.batch_size, cache, chosen, precision)
        metrics, predictions, task = scored.metrics, scored.predictions, scored.task
    if scoring.predictions is not None:
        write_prediction_rows(scoring.predictions, prediction_rows(task, split, predictions))
    return EvaluationResult(task.id, split, metrics, len(predictions), scoring.predictions, counts), task, predictions


def analyze_errors(task: Task, split: Split, predictions: Sequence[Any], num_mistakes: int) -> ErrorAnalysis:
    """Find where a model goes wrong; right predictions are no mistakes, however unsure the model was.

    Args:
        num_mistakes: number of the worst mistakes to keep.
    """
    rows = prediction_rows(task, split, predictions)
    worst = worst_mistakes(rows)
    shown = ("id", *task.type.request.keys, "prediction", "gold")
    mistakes = [
        {key: row[key] for key in shown if key in row} | {"wrongness": wrongness(row)} for row in worst[:num_mistakes]
    ]
    return ErrorAnalysis(breakdown(rows), mistakes, len(worst))


def check_reranks(task: Task) -> None:
    """Check that a task has hits that a reranker can score. Raises: InputError."""
    if not task.type.is_searched:
        raise InputError(f"task {task.id} is no retrieval: it has no hits to score again; leave rerank out")


def own_task_values(
    recorded: Mapping[str, Any] | None, task: str, overrides: Sequence[str]
) -> Mapping[str, Any] | None:
    """Values of the task that a model was fine-tuned on, by the task's id; None where the id means another one.

    Args:
        recorded: values of the model's task; None where they are not known.
        overrides: `KEY=VALUE` texts, `task.` before KEY or not.
    """
    if recorded is None or recorded["id"] != task:
        return None
    overridden = {text.removeprefix("task.").partition("=")[0].partition(".")[0] for text in overrides}
    if overridden & _DATA_FIELDS:
        is_known = task in KNOWN_TASKS
        return None if is_known else {name: recorded[name] for name in recorded.keys() - _OF_OTHER_FILES}
    if not (recorded.get("split") or {}).get("folds"):
        return recorded
    files = {split: file for split, file in (recorded.get("files") or {}).items() if split != "train"}
    if not files:
        raise InputError(f"task {task} has folds of its training file alone; name a file to score on")
    return {**recorded, "split": None, "files": files}  # folds are no splits to score on


def values_on_file(folder: str, file: str, split: str, recorded: Mapping[str, Any] | None) -> dict[str, Any]:
    """The model's task with a file as its split: as its run says, or as its folder does where no run is recorded."""
    learned = load_task_definition(local_copy(folder, skip=("model.safetensors",)))
    files = {"files": {split: file}}
    if learned.id in KNOWN_TASKS:
        return {"id": learned.id} | files
    texts: Sequence[str] = learned.text_columns
    if not texts and table_name(file) and exists(file):  # as `predict` finds them
        names = column_names(file, BadRecords(file, "skip"), within=False)
        texts = [key for key in ("text", "text_pair") if key in names and key in learned.type.request.keys]
    saved = {
        "head": learned.head,
        "text_columns": texts,
        "numerical_columns": [column.name for column in learned.columns.numbers],
        "categorical_columns": [column.name for column in learned.columns.categories],
        "objective": learned.objective,
    }
    kept = {name: value for name, value in (recorded or saved).items() if name not in _OF_OTHER_FILES}
    return kept | {"id": Path(file).name, "labels": learned.labels or None} | files
