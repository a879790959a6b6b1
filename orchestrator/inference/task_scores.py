"""A model's scores on a split of a task."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InputError
from orchestrator.finetuning.evaluation import evaluate_model
from orchestrator.inference.error_analysis import ErrorAnalysis, analyze_errors
from orchestrator.models.device import choose_device
from orchestrator.results import EvaluationResult, Split
from orchestrator.retrieval.reranking import Reranking
from orchestrator.retrieval.searching import INDEXES, rank_queries
from orchestrator.specs.network import Precision
from orchestrator.storage import join
from orchestrator.tasks import Task, rows_with_texts, score, write_prediction_rows


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
    precision: Precision = "fp32"
    """Arithmetic of the forward pass, of a reranker's too."""
    reranking: Reranking | None = None
    """Model that scores the first hits of a retrieval task again, and how."""


def evaluate(
    scoring: Scoring, device: str = "cpu", on_progress: Callable[[str], None] = lambda line: None
) -> EvaluationResult:
    """Score a model; its predictions go to a file where one is named.

    Args:
        device: where the models compute, `cpu` or `cuda`.
    """
    return _evaluate(scoring, device, on_progress)[0]


def evaluate_closely(
    scoring: Scoring,
    device: str = "cpu",
    on_progress: Callable[[str], None] = lambda line: None,
    *,
    num_mistakes: int,
) -> ErrorAnalysis:
    """Score a model as `evaluate` does, and find where it goes wrong.

    Args:
        num_mistakes: number of the worst mistakes to keep.
    """
    result, task, found = _evaluate(scoring, device, on_progress)
    return analyze_errors(result, task, scoring.split, found, num_mistakes)


def _evaluate(
    scoring: Scoring, device: str, on_progress: Callable[[str], None]
) -> tuple[EvaluationResult, Task, Sequence[Any]]:
    """Score a model; returns the task with the model's labels and the predictions beside the result."""
    folder, task, split = scoring.folder, scoring.task, scoring.split
    if scoring.reranking is not None:
        check_reranks(task)
    found: Sequence[Any]
    counts: dict[str, int] = {}
    if task.type.is_searched:
        kept = join(scoring.storage, INDEXES)
        found, counts = rank_queries(
            folder, task, split, scoring.reranking, on_progress, kept, device, scoring.precision
        )
        metrics = score(task, split, found)
    else:
        cache = join(scoring.storage, "tasks")
        chosen = choose_device(device, precision=scoring.precision)
        metrics, found, task = evaluate_model(folder, task, split, scoring.batch_size, cache, chosen, scoring.precision)
    if scoring.predictions is not None:
        write_prediction_rows(scoring.predictions, rows_with_texts(task, split, found))
    return EvaluationResult(task.id, split, metrics, len(found), scoring.predictions, counts), task, found


def check_reranks(task: Task) -> None:
    """Check that a task has hits that a reranker can score. Raises: InputError."""
    if not task.type.is_searched:
        raise InputError(f"task {task.id} is no retrieval: it has no hits to score again; leave rerank out")
