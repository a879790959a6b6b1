"""One trial of a sweep in one process: its job, features and encoder from the process's cache, training, scores, files.

A trial's process runs many trials: their task, tokenizers, features and model folders are read once.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import torch

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.micro_batches import is_out_of_memory
from bert_core.optimization import unfreeze_top_layers
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.console import attached
from orchestrator.base.metric_names import BASELINE, COLLAPSED
from orchestrator.base.results import MessageEvent, MetricEvent, Split, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.cluster.own_errors import OWN_ERRORS
from orchestrator.cluster.process_warnings import CollectedWarnings
from orchestrator.cluster.torch_devices import choose_device
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.evaluation import ScoredSplit, score_model
from orchestrator.finetuning.heads import HeadModel
from orchestrator.finetuning.logits import TokenBudget, freeze
from orchestrator.finetuning.model_folder import save_model_folder
from orchestrator.finetuning.model_record import FineTuningRecord
from orchestrator.finetuning.search_space import TrialPlan
from orchestrator.finetuning.training import Evaluation, Loss, fine_tune
from orchestrator.finetuning.training_checkpoints import CheckpointedTraining, Report, TrialCheckpoint
from orchestrator.finetuning.trial_journal import may_lead
from orchestrator.specs import RecipeSpec
from orchestrator.specs.references import RANDOM
from orchestrator.storage import join, local_copy
from orchestrator.storage.attempts import refuse_without_mark
from orchestrator.tasks.feature_cache import prepare_features
from orchestrator.tasks.features import Features
from orchestrator.tasks.scoring import kept_rows, majority_baseline, write_prediction_rows
from orchestrator.tasks.task import Task
from orchestrator.training.checkpoints import Checkpoints

_OUT_OF_MEMORY = (
    "the card's memory ran out; lower recipe.batch_size or recipe.max_seq_length, or let fewer trials share a card "
    "(execution.gpus_per_trial 1)"
)
Cached = TypeVar("Cached")


@dataclass(frozen=True)
class TrialJob:
    """Value that every trial of a sweep gets; it pickles small: the task travels without its examples."""

    task: Task
    baseline: Mapping[str, float]
    """Scores of the majority baseline on the validation split."""
    folders: Mapping[str, str]
    """Folder of each model and tokenizer, by the name that recipes use."""
    run_folder: str
    mark: str
    """Mark that the driver has left on the storage, which a trial's process must see (`training.attempts`)"""
    cache: str
    """Folder of tokenized features on the storage."""
    num_threads: int
    gpus: float
    """GPUs of a trial; a fraction of one bounds its memory: a trial that wants more goes on with smaller micro-batches
    or fails, and not its neighbors."""
    attempt: int = 1
    """Number of the sweep's attempt; a later one's checkpoints stop a trial."""
    checkpoint_every_s: float = 0.0
    """Training time, at least, between two checkpoints of a trial."""
    cached: dict[tuple[object, ...], Any] = field(default_factory=dict, compare=False)
    """Values that the trials of a process share: Tune gives all of them one job, which travels there without any."""

    def tokenizer_folder(self, recipe: RecipeSpec) -> str:
        """Folder of the recipe's tokenizer: the start model's, or the named one for random weights."""
        name = recipe.tokenizer if recipe.init_from == RANDOM else recipe.init_from
        assert name is not None, "the sweep refuses random weights without a tokenizer"
        return self.folders[name]

    def shared_task(self, fold: int | None) -> Task:
        """The task of a fold, which keeps the examples that a trial of this process has read."""
        if fold is None:
            return self.task
        self.task.read("train")  # once for all folds
        return self._cached(("task", fold), lambda: replace(self.task, fold=fold))

    def shared_baseline(self, fold: int | None) -> Mapping[str, float]:
        if fold is None:
            return self.baseline
        return self._cached(("baseline", fold), lambda: majority_baseline(self.shared_task(fold), "validation"))

    def shared_tokenizer(self, recipe: RecipeSpec) -> Tokenizer:
        folder = self.tokenizer_folder(recipe)
        return self._cached(("tokenizer", folder), lambda: Tokenizer.load(local_copy(folder, skip=(WEIGHTS_FILE,))))

    def shared_features(
        self, split: Split, recipe: RecipeSpec, tokenizer: Tokenizer, fold: int | None
    ) -> Features[Any]:
        options = self.task.type.options_type.of_recipe(recipe)
        return self._cached(
            ("features", split, fold, tokenizer.fingerprint, recipe.train_fraction, *options.window_values().values()),
            lambda: prepare_trial_features(self.shared_task(fold), split, recipe, tokenizer, self.cache),
        )

    def local_folder(self, name: str) -> Path:
        folder = self.folders[name]
        return self._cached(("folder", folder), lambda: local_copy(folder))

    def _cached(self, key: tuple[object, ...], make: Callable[[], Cached]) -> Cached:
        if key not in self.cached:
            self.cached[key] = make()
        found: Cached = self.cached[key]
        return found


def trial_folder(run_folder: str, key: str) -> str:
    return join(run_folder, f"trials/{key}")


def prepare_trial_features(
    task: Task, split: Split, recipe: RecipeSpec, tokenizer: Tokenizer, cache: str
) -> Features[Any]:
    """A split's features as a recipe wants them, from the cache where they are there."""
    task = replace(task, train_fraction=recipe.train_fraction) if split == "train" else task
    return prepare_features(task, split, tokenizer, task.type.options_type.of_recipe(recipe), cache)


def run_trial(job: TrialJob, plan: TrialPlan, report: Report) -> TrialResult:
    """Train and score one trial. What goes wrong in it is its result: FAILED, with the reason in one line.

    Raises: ClusterError where this process does not see the driver's storage; nor would any other trial on this host.
    """
    refuse_without_mark(job.mark)
    begun_at = perf_counter()
    torch.set_num_threads(job.num_threads)
    values: dict[str, Any]
    warnings = CollectedWarnings()

    def report_with_warnings(events: Sequence[MetricEvent | MessageEvent], score: float | None, number: int) -> None:
        warned = [MessageEvent(text, "warning") for text in warnings.take()]
        report([*warned, *events], score, number)

    try:
        with attached(warnings):
            best, predictions_path = _train(job, plan, report_with_warnings)
        baseline = job.shared_baseline(plan.fold)
        collapsed = {COLLAPSED: float(best.score <= baseline[job.task.metric])}
        metrics = {**best.scored.metrics, **baseline_metrics(baseline), **collapsed}
        state = RunState.COMPLETED
        values = {"best_step": best.step, "metrics": metrics, "predictions_path": predictions_path}
    except Exception as error:
        state, values = RunState.FAILED, {"error": _reason(error)}
    return plan.result(state, seconds=perf_counter() - begun_at, host=socket.gethostname(), **values)


def baseline_metrics(scores: Mapping[str, float]) -> dict[str, float]:
    """The majority's scores by their names among a model's."""
    return {BASELINE + name: value for name, value in scores.items()}


def _reason(error: Exception) -> str:
    """Reason of a failure in one line; foreign errors begin with their type."""
    line = next(iter(str(error).strip().splitlines()), "no reason given")
    if is_out_of_memory(error):
        return f"{_OUT_OF_MEMORY} ({line.partition('. ')[0]})"
    return line if isinstance(error, OWN_ERRORS) else f"{type(error).__name__}: {line}"


def _train(job: TrialJob, plan: TrialPlan, report: Report) -> tuple[Evaluation[ScoredSplit], str]:
    """Train a plan, from its checkpoint on where it has one; write its weights where it leads.

    Returns its best evaluation and the path of its predictions.
    """
    recipe = plan.recipe
    device = choose_device(
        "cuda" if job.gpus else "cpu",
        recipe.allow_tf32,
        recipe.precision,
    )
    if 0.0 < job.gpus < 1.0:
        torch.cuda.set_per_process_memory_fraction(job.gpus)
    task, tokenizer = job.shared_task(plan.fold), job.shared_tokenizer(recipe)
    train, validation = (job.shared_features(split, recipe, tokenizer, plan.fold) for split in ("train", "validation"))
    init_folder = None if recipe.init_from == RANDOM else str(job.local_folder(recipe.init_from))
    model = build_model(task, recipe, init_folder, tokenizer).to(device)
    if recipe.freeze_encoder:
        train, validation = freeze((train, validation), model, recipe.precision, job.cache)
        unfreeze_top_layers(model, 0)
    folder = trial_folder(job.run_folder, plan.key)
    checkpoint = TrialCheckpoint(
        Checkpoints(folder, job.attempt, keep=1),
        {"the device": device.type, "the data": [train.fingerprint, validation.fingerprint]},
        report,
        metric=job.task.metric,
        interval_s=job.checkpoint_every_s,
    )

    leads = partial(may_lead, job.run_folder, number=plan.number)
    return train_and_save(model, tokenizer, task, train, validation, recipe, folder, checkpoint, leads=leads)


def train_and_save(
    model: HeadModel,
    tokenizer: Tokenizer,
    task: Task,
    train: Features[Any],
    validation: Features[Any],
    recipe: RecipeSpec,
    folder: str,
    checkpoint: CheckpointedTraining,
    loss: Loss | None = None,
    leads: Callable[[float], bool] = lambda score: True,
) -> tuple[Evaluation[ScoredSplit], str]:
    """Train a model by its recipe; the best step's weights go to `folder`/model, the predictions beside them.

    Args:
        checkpoint: saves the training, and is told of its evaluations.
        leads: decides by the best score whether anybody may want the weights; where not, they are not written.

    Returns the best evaluation and the path of its predictions. Raises: DivergedError; RunFailedError where memory
    runs out with a single example; what `checkpoint` raises, CheckpointError where it cannot be used among it.
    """
    steps_per_epoch = -(-len(train.group_lengths) // recipe.batch_size)
    options = task.type.options_type.of_recipe(recipe)
    budget = TokenBudget()

    def evaluate() -> tuple[float, ScoredSplit]:
        scored = score_model(model, task, validation, "validation", options, recipe.precision, budget=budget)
        return scored.metrics[task.metric], scored

    def on_evaluation(evaluation: Evaluation[ScoredSplit], best_score: float) -> None:
        step, epoch = evaluation.step, evaluation.step / steps_per_epoch
        training = {
            "loss": evaluation.train_loss,
            "learning_rate": evaluation.learning_rate,
            "examples_per_s": evaluation.examples_per_s,
        }
        validation = dict(evaluation.scored.metrics)
        events = MetricEvent(step, "train", training, epoch), MetricEvent(step, "validation", validation, epoch)
        checkpoint.report_evaluation(events, None if evaluation.is_last else best_score, evaluation.number)

    best = fine_tune(model, train, recipe, evaluate, on_evaluation, loss, checkpoint)
    if leads(best.score):
        save_model_folder(model.cpu(), tokenizer, FineTuningRecord(task, best.scored.options), join(folder, "model"))
    predictions_path = join(folder, "predictions.jsonl")
    write_prediction_rows(predictions_path, kept_rows(task, "validation", best.scored.predictions))
    return best, predictions_path
