"""A model's scores on a split of a task."""

from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.errors import InputError
from orchestrator.finetuning.evaluation import evaluate_model
from orchestrator.results import EvaluationResult, Split
from orchestrator.retrieval.reranking import Reranking
from orchestrator.retrieval.searching import INDEXES, rank_queries
from orchestrator.storage import join
from orchestrator.tasks import Task, prediction_rows, score, write_prediction_rows


def evaluate(
    folder: str,
    task: Task,
    split: Split,
    storage: str,
    batch_size: int = 64,
    predictions: str | None = None,
    reranking: Reranking | None = None,
    device: str = "cpu",
    on_progress: Callable[[str], None] = lambda line: None,
) -> EvaluationResult:
    """Scores of a model's folder on a split of a task; per-example predictions go to a JSONL file where one is named.

    Args:
        task: loaded; its split is read once.
        storage: where tokenized examples and document indexes are kept.
        reranking: scores the first hits of a retrieval task again.
        device: where the models compute, `cpu` or `cuda`.
    """
    if reranking is not None:
        check_reranks(task)
    found: Sequence[Any]
    counts: dict[str, int] = {}
    if task.type.is_searched:
        kept = join(storage, INDEXES)
        found, counts = rank_queries(folder, task, split, reranking, on_progress, kept, device)
        metrics = score(task, split, found)
    else:
        metrics, found, task = evaluate_model(folder, task, split, batch_size, join(storage, "tasks"), device)
    if predictions is not None:
        write_prediction_rows(predictions, prediction_rows(task, split, found))
    return EvaluationResult(task.id, split, metrics, len(found), predictions, counts)


def check_reranks(task: Task) -> None:
    """Check that a task has hits that a reranker can score. Raises: InputError."""
    if not task.type.is_searched:
        raise InputError(f"task {task.id} is no retrieval: it has no hits to score again; leave rerank out")
