"""Runs that score a model on a split of a task."""

import logging
from functools import partial

from orchestrator.cluster.capacity import decide_gpus
from orchestrator.inference.task_scores import check_reranks, evaluate
from orchestrator.kinds.base import Kind, Resources, RunContext
from orchestrator.kinds.resolved import Resolved
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.results import EvaluationResult
from orchestrator.retrieval.reranking import Reranking
from orchestrator.specs import EvaluateSpec
from orchestrator.storage import join
from orchestrator.storage.uris import absolute

logger = logging.getLogger(__name__)


class EvaluateKind(Kind[EvaluateSpec, EvaluationResult]):
    """Scoring of a model, in the driver's process or in a Ray task that has GPUs."""

    spec = EvaluateSpec

    def check(self, spec: EvaluateSpec, inputs: Resolved) -> None:
        """Check that the task has the split, and hits to score again where a model reranks."""
        task = inputs.task(spec.task)
        task.file(spec.split)
        if spec.rerank is not None:
            check_reranks(task)

    def resources(self, spec: EvaluateSpec) -> Resources:
        """Return one CPU, and the GPUs that the spec asks for."""
        return Resources.of_one_process(gpus=spec.gpus)

    def run(self, spec: EvaluateSpec, inputs: Resolved, context: RunContext) -> EvaluationResult:
        """Score the model and write its prediction for each example."""
        from orchestrator.cluster.remote_call import call_on_device  # Ray is loaded when a run starts

        gpus, reranking = decide_gpus(spec.gpus), None
        if spec.rerank is not None:
            folder = absolute(inputs.folder("rerank", spec.rerank))
            reranking = Reranking(folder, spec.relevant_label, spec.num_candidates)
        # Absolute paths, since Ray's processes have another working folder.
        score = partial(
            evaluate,
            absolute(inputs.folder("model", spec.model)),
            inputs.task(spec.task).at_absolute_paths(),
            spec.split,
            context.settings.storage,
            spec.batch_size,
            join(context.run_folder, f"predictions/{spec.split}.jsonl"),
            reranking,
        )
        if not gpus:  # the status line cannot be reached from another process
            score = partial(score, on_progress=context.progress.status)
        problem, remedy = "the model was not scored", "; if memory ran out, lower batch_size"
        result = call_on_device(score, 1.0, gpus, problem, remedy)
        scores = "  ".join(f"{name} {value:.4f}" for name, value in result.metrics.items())
        logger.info(f"{result.task} ({result.split}, {result.num_examples:,} examples): {scores}")
        return result

    def record(self, result: EvaluationResult, run_id: str, recorder: Recorder) -> RunOutcome:
        """Write the scores, and the number of examples among them."""
        scores = {**result.metrics, "num_examples": float(result.num_examples)}
        recorder.record_final_metrics(run_id, 0, result.split, scores)
        return RunOutcome(predictions_path=result.predictions_path)
