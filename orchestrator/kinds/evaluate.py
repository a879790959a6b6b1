"""Runs that score a model on a split of a task."""

import logging
from functools import partial

from orchestrator.base.results import EvaluationResult
from orchestrator.cluster.gpus import call_on_device, take_gpus
from orchestrator.inference.searching import Reranking
from orchestrator.inference.task_scores import Scoring, check_reranks, evaluate
from orchestrator.kinds.base import Kind, Resources, RunContext
from orchestrator.kinds.resolved import Resolved, data_digests
from orchestrator.registry.parameters import RECORDED_DIGITS
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.specs import EvaluateSpec
from orchestrator.storage import join
from orchestrator.storage.uris import absolute

logger = logging.getLogger(__name__)


class EvaluateKind(Kind[EvaluateSpec, EvaluationResult]):
    """Scoring of a model, in the driver's process or in a Ray task that has GPUs."""

    spec = EvaluateSpec

    def check(self, spec: EvaluateSpec, inputs: Resolved) -> None:
        """Check that the task has the split and that it can be read, and hits to score again where a model reranks."""
        task = inputs.task(spec.task)
        task.read(spec.split)
        if spec.rerank is not None:
            check_reranks(task)

    def resources(self, spec: EvaluateSpec) -> Resources:
        return Resources.of_one_process(gpus=spec.gpus)

    def run(self, spec: EvaluateSpec, inputs: Resolved, context: RunContext) -> EvaluationResult:
        gpus, reranking = take_gpus("scoring", spec.gpus), None
        if spec.rerank is not None:
            folder = absolute(inputs.folder("rerank", spec.rerank))
            reranking = Reranking(folder, spec.relevant_label, spec.num_candidates)
        # The leaderboard ranks scores on the same data together, and says which models were chosen on them.
        data = data_digests(inputs.task(spec.task), [spec.split])
        model = inputs.content_digest("model", spec.model)[:RECORDED_DIGITS]
        context.recorder.registry.trials.set_data(context.run_id, data | {"model": model})
        # Absolute paths, since Ray's processes have another working folder.
        scoring = Scoring(
            folder=absolute(inputs.folder("model", spec.model)),
            task=inputs.task(spec.task).at_absolute_paths(),
            split=spec.split,
            storage=context.settings.storage,
            batch_size=spec.batch_size,
            predictions=join(context.run_folder, f"predictions/{spec.split}.jsonl"),
            precision=spec.precision,
            reranking=reranking,
        )
        score = partial(evaluate, scoring)
        if not gpus:  # the status line cannot be reached from another process
            score = partial(score, on_progress=context.progress.status)
        problem, remedy = "the model was not scored", "; if memory ran out, lower batch_size"
        result = call_on_device(score, 1.0, gpus, problem, remedy)
        scores = "  ".join(f"{name} {value:.4f}" for name, value in result.metrics.items())
        logger.info(f"{result.task} ({result.split}, {result.num_examples:,} examples): {scores}")
        return result

    def record(self, result: EvaluationResult, run_id: str, recorder: Recorder) -> RunOutcome:
        scores = {**result.metrics, "num_examples": float(result.num_examples)}
        recorder.record_final_metrics(run_id, 0, result.split, scores)
        return RunOutcome(predictions_path=result.predictions_path)
