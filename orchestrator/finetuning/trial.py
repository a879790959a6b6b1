"""One trial, in one process: features and encoder from the process's cache, training, scores, files on the storage."""

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch

from bert_core.micro_batches import is_out_of_memory
from bert_core.optimization import unfreeze_top_layers
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import OWN_ERRORS
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.checkpointed_training import CheckpointedTraining
from orchestrator.finetuning.evaluation import ScoredSplit, score_model
from orchestrator.finetuning.frozen import freeze
from orchestrator.finetuning.heads import HeadModel
from orchestrator.finetuning.leader import may_lead
from orchestrator.finetuning.model_folder import save_model_folder
from orchestrator.finetuning.model_record import record_of
from orchestrator.finetuning.scoring_room import ScoringRoom
from orchestrator.finetuning.search_space import TrialPlan
from orchestrator.finetuning.step_loss import Loss
from orchestrator.finetuning.training import BestEvaluation, Evaluation, fine_tune
from orchestrator.finetuning.trial_checkpoint import Report, TrialCheckpoint
from orchestrator.finetuning.trial_job import WITHOUT_CARD, TrialJob, trial_folder
from orchestrator.measurements import COLLAPSED
from orchestrator.models.device import choose_device
from orchestrator.results import MetricEvent, TrialResult
from orchestrator.run_states import RunState
from orchestrator.specs import RecipeSpec
from orchestrator.specs.references import RANDOM
from orchestrator.storage import join
from orchestrator.tasks import Features, Task, kept_rows, write_prediction_rows
from orchestrator.training.attempts import refuse_without_mark
from orchestrator.training.checkpoints import Checkpoints

logger = logging.getLogger(__name__)
_OUT_OF_MEMORY = (
    "the card's memory ran out; lower recipe.batch_size or recipe.max_seq_length, or let fewer trials share a card "
    "(execution.gpus_per_trial 1)"
)


def run_trial(job: TrialJob, plan: TrialPlan, report: Report) -> TrialResult:
    """Train and score one trial. What goes wrong in it is its result: FAILED, with the reason in one line.

    Raises: ClusterError where this process does not see the driver's storage; nor would any other trial on this host.
    """
    refuse_without_mark(job.mark)
    begun_at = perf_counter()
    torch.set_num_threads(job.num_threads)
    try:
        best, predictions_path = _train(job, plan, report)
        baseline = job.shared_baseline(plan.fold)
    except Exception as error:
        seconds, host = perf_counter() - begun_at, socket.gethostname()
        return plan.result(RunState.FAILED, error=_reason(error), seconds=seconds, host=host)
    return plan.result(
        RunState.COMPLETED,
        best_step=best.evaluation.step,
        metrics={
            **best.evaluation.scored.metrics,
            **baseline_metrics(baseline),
            COLLAPSED: float(best.evaluation.score <= baseline[job.task.metric]),
        },
        predictions_path=predictions_path,
        seconds=perf_counter() - begun_at,
        host=socket.gethostname(),
    )


def baseline_metrics(scores: Mapping[str, float]) -> dict[str, float]:
    """The majority's scores by their names among a model's."""
    return {f"baseline.{name}": value for name, value in scores.items()}


def _reason(error: Exception) -> str:
    """Reason of a failure in one line; foreign errors begin with their type."""
    line = next(iter(str(error).strip().splitlines()), "no reason given")
    if is_out_of_memory(error):
        return f"{_OUT_OF_MEMORY} ({line.partition('. ')[0]})"
    return line if isinstance(error, OWN_ERRORS) else f"{type(error).__name__}: {line}"


def _train(job: TrialJob, plan: TrialPlan, report: Report) -> tuple[BestEvaluation[ScoredSplit], str]:
    """Train a plan, from its checkpoint on where it has one; write its weights where it leads.

    Returns its best evaluation and the path of its predictions.
    """
    recipe = plan.recipe
    notes: list[str] = []
    device = choose_device(
        "cuda" if job.use_gpu else "cpu",
        recipe.allow_tf32,
        recipe.precision,
        notes.append,
        is_shared=job.card_share is not None,
        trains=True,
        or_else=WITHOUT_CARD,
    )
    if job.use_gpu and job.card_share is not None:
        torch.cuda.set_per_process_memory_fraction(job.card_share)
    task, tokenizer = job.shared_task(plan.fold), job.shared_tokenizer(recipe)
    train, validation = (job.shared_features(split, recipe, tokenizer, plan.fold) for split in ("train", "validation"))
    init_folder = None if recipe.init_from == RANDOM else str(job.local_folder(recipe.init_from))
    model = build_model(task, recipe, init_folder, tokenizer).to(device)
    if recipe.freeze_encoder:
        train, validation = freeze((train, validation), model, recipe.precision, job.cache, notes.append)
        unfreeze_top_layers(model, 0)
    folder = trial_folder(job.run_folder, plan.key)
    checkpoint = TrialCheckpoint(
        Checkpoints(folder, job.attempt, keep=1),
        {"the device": device.type, "the data": [train.fingerprint, validation.fingerprint]},
        report,
        metric=job.task.metric,
        interval_s=job.checkpoint_every_s,
    )
    for note in notes:
        checkpoint.warn(note)

    def leads(score: float) -> bool:
        return may_lead(job.run_folder, score, plan.number)

    return train_and_save(
        model,
        tokenizer,
        task,
        train,
        validation,
        recipe,
        folder,
        checkpoint.report_evaluation,
        None,
        checkpoint,
        leads,
        checkpoint.warn,
    )


def train_and_save(
    model: HeadModel,
    tokenizer: Tokenizer,
    task: Task,
    train: Features[Any],
    validation: Features[Any],
    recipe: RecipeSpec,
    folder: str,
    report: Callable[[Sequence[MetricEvent], float | None, int], None],
    loss: Loss | None = None,
    checkpoint: CheckpointedTraining | None = None,
    leads: Callable[[float], bool] = lambda score: True,
    warn: Callable[[str], None] = logger.warning,
) -> tuple[BestEvaluation[ScoredSplit], str]:
    """Train a model by its recipe; the best step's weights go to `folder`/model, the predictions beside them.

    Args:
        leads: decides by the best score whether anybody may want the weights; where not, they are not written.
        warn: told, in one line, that memory ran out and what is done about it.

    Returns the best evaluation and where its predictions lie. Raises: DivergedError; RunFailedError where memory runs
    out with a single example; what `report` raises;
    CheckpointError when the `checkpoint` of an interrupted training cannot be used.
    """
    steps_per_epoch = -(-len(train.group_lengths) // recipe.batch_size)

    options = task.type.options_type.of_recipe(recipe)
    room = ScoringRoom(warn=warn)

    def evaluate() -> tuple[float, ScoredSplit]:
        scored = score_model(model, task, validation, "validation", options, recipe.precision, room=room)
        return scored.metrics[task.metric], scored

    def on_evaluation(evaluation: Evaluation[ScoredSplit], best_score: float) -> None:
        report(_events(evaluation, steps_per_epoch), None if evaluation.is_last else best_score, evaluation.number)

    best = fine_tune(model, train, recipe, evaluate, on_evaluation, loss, checkpoint, warn)
    if leads(best.evaluation.score):
        record = record_of(task, best.evaluation.scored.options)
        save_model_folder(model.cpu(), tokenizer, record, join(folder, "model"))
    predictions_path = join(folder, "predictions.jsonl")
    rows = kept_rows(task, "validation", best.evaluation.scored.predictions)
    write_prediction_rows(predictions_path, rows)
    return best, predictions_path


def _events(evaluation: Evaluation[ScoredSplit], steps_per_epoch: int) -> tuple[MetricEvent, MetricEvent]:
    epoch = evaluation.step / steps_per_epoch
    training = {
        "loss": evaluation.train_loss,
        "learning_rate": evaluation.learning_rate,
        "examples_per_s": evaluation.examples_per_s,
    }
    return (
        MetricEvent(evaluation.step, "train", training, epoch),
        MetricEvent(evaluation.step, "validation", dict(evaluation.scored.metrics), epoch),
    )
