"""Runs that score a model on a split of a task."""

import logging

from orchestrator.inference.task_scores import check_reranks, evaluate
from orchestrator.kinds.base import Kind, RunContext
from orchestrator.kinds.resolved import Resolved
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.results import EvaluationResult
from orchestrator.retrieval.reranking import Reranking
from orchestrator.specs import EvaluateSpec
from orchestrator.storage import join

logger = logging.getLogger(__name__)


class EvaluateKind(Kind[EvaluateSpec, EvaluationResult]):
    """Scoring of a model, in the driver's process."""

    spec = EvaluateSpec

    def check(self, spec: EvaluateSpec, inputs: Resolved) -> None:
        """Check that the task has the split, and hits to score again where a model reranks."""
        task = inputs.task(spec.task)
        task.file(spec.split)
        if spec.rerank is not None:
            check_reranks(task)

    def run(self, spec: EvaluateSpec, inputs: Resolved, context: RunContext) -> EvaluationResult:
        """Score the model and write its prediction for each example."""
        reranking = None
        if spec.rerank is not None:
            reranking = Reranking(inputs.folder("rerank", spec.rerank), spec.relevant_label, spec.num_candidates)
        result = evaluate(
            inputs.folder("model", spec.model),
            inputs.task(spec.task),
            spec.split,
            context.settings.storage,
            spec.batch_size,
            join(context.run_folder, f"predictions/{spec.split}.jsonl"),
            reranking=reranking,
            on_progress=context.progress.status,
        )
        scores = "  ".join(f"{name} {value:.4f}" for name, value in result.metrics.items())
        logger.info(f"{result.task} ({result.split}, {result.num_examples:,} examples): {scores}")
        return result

    def record(self, result: EvaluationResult, run_id: str, recorder: Recorder) -> RunOutcome:
        """Write the scores, and the number of examples among them."""
        scores = {**result.metrics, "num_examples": float(result.num_examples)}
        recorder.record_final_metrics(run_id, 0, result.split, scores)
        return RunOutcome(predictions_path=result.predictions_path)
