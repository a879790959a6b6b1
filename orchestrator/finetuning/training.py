"""The loop that fine-tunes one model: packed batches in, the best step's weights out."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import count, islice
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bert_core.counter_random import derive_key
from bert_core.layerwise import unfreeze_top_layers
from bert_core.optimization import build_optimizer, linear_warmup_decay, set_learning_rate
from orchestrator.errors import RunFailedError
from orchestrator.finetuning.batches import make_batch
from orchestrator.finetuning.checkpointed_training import CheckpointedTraining, TrainingSnapshot
from orchestrator.finetuning.heads import HEADS, Batch, HeadModel
from orchestrator.finetuning.logits import autocast
from orchestrator.specs import RecipeSpec
from orchestrator.tasks import Features
from orchestrator.training.batch_order import Schedule, epoch_batches

_CHECK_EVERY_STEPS = 20
"""The loss is looked at this often: seldom enough not to hold up a GPU."""

Scored = TypeVar("Scored")
Loss = Callable[[HeadModel, Batch], Tensor]
"""Function that gives a model's loss on a batch, a scalar."""


class DivergedError(RunFailedError):
    """A loss that is no longer a number."""


@dataclass(frozen=True)
class Evaluation(Generic[Scored]):
    """An evaluation of the model after a step: the score that ranks, and what else the caller wants to have with it."""

    step: int
    number: int
    """1 for the first evaluation"""
    score: float
    scored: Scored
    train_loss: float
    """Mean over the steps since the last evaluation"""
    learning_rate: float
    examples_per_s: float
    is_last: bool
    """Whether the training ends with it"""


@dataclass
class BestEvaluation(Generic[Scored]):
    """The best evaluation so far, and the weights it saw; the earlier one where scores are equal."""

    evaluation: Evaluation[Scored]
    weights: dict[str, Tensor]


def fine_tune(
    model: HeadModel,
    features: Features[Any],
    recipe: RecipeSpec,
    evaluate: Callable[[], tuple[float, Scored]],
    on_evaluation: Callable[[Evaluation[Scored], float], None],
    loss: Loss | None = None,
    checkpoint: CheckpointedTraining | None = None,
) -> BestEvaluation[Scored]:
    """Train the model by its recipe; it ends with the best step's weights.

    Order, dropout and updates are functions of recipe and data: the same device, thread count and torch give the same
    weights again, bit by bit.

    Args:
        evaluate: gives the model's score on validation data, higher being better, and what comes with it.
        on_evaluation: told of each evaluation and the best score so far; raising ends the training.
        loss: what is made smaller, of a batch; the labels' loss when left out.
        checkpoint: saves the training after each evaluation, and says from where to go on.

    Raises: DivergedError when the loss is not finite; CheckpointError when a saved training cannot be used.
    """
    if loss is None:
        loss = HEADS[features.head].compute_loss
    schedule = Schedule(len(features.group_lengths), recipe.batch_size, recipe.epochs, recipe.evaluations_per_epoch)
    optimizer = build_optimizer(
        model, recipe.learning_rate, recipe.weight_decay, layer_decay=recipe.layer_learning_rate_decay
    )
    num_warmup = round(recipe.warmup_ratio * schedule.num_steps)
    meter = _Meter()
    best: BestEvaluation[Scored] | None = None
    num_done = num_bad_evaluations = 0
    snapshot = None if checkpoint is None else checkpoint.restore(model, optimizer)
    if snapshot is not None:
        num_done = schedule.num_steps if snapshot.is_last else snapshot.step
        num_bad_evaluations, best = snapshot.num_bad_evaluations, _best_again(model, snapshot, evaluate)
    evaluation_numbers = {step: number for number, step in enumerate(schedule.evaluation_steps, start=1)}
    model.train()
    for step, groups in enumerate(islice(_batches(features, recipe), num_done, schedule.num_steps), start=num_done + 1):
        if recipe.unfreeze_every_epochs is not None:
            unfreeze_top_layers(
                model, math.floor((step - 1) / (recipe.unfreeze_every_epochs * schedule.steps_per_epoch))
            )
        factor = linear_warmup_decay(step - 1, schedule.num_steps, num_warmup)
        windows = features.windows_of(groups)
        value = _step(model, features, windows, recipe, optimizer, step, recipe.learning_rate * factor, loss)
        meter.add(value, len(groups), step)
        if step not in evaluation_numbers:
            continue
        train_loss, examples_per_s = meter.read(step)
        score, scored = evaluate()
        is_better = best is None or score > best.evaluation.score
        num_bad_evaluations = 0 if is_better else num_bad_evaluations + 1
        evaluation = Evaluation(
            step=step,
            number=evaluation_numbers[step],
            score=score,
            scored=scored,
            train_loss=train_loss,
            learning_rate=recipe.learning_rate * factor,
            examples_per_s=examples_per_s,
            is_last=step == schedule.num_steps or num_bad_evaluations == recipe.patience,
        )
        if best is None or is_better:
            best = BestEvaluation(evaluation, _copy_weights(model))
        on_evaluation(evaluation, best.evaluation.score)
        if checkpoint is not None:
            checkpoint.save(model, optimizer, _snapshot(evaluation, num_bad_evaluations, best))
        if evaluation.is_last:
            break
        meter.restart()
    assert best is not None, "the last step is always evaluated"
    model.load_state_dict(best.weights)
    return best


def _snapshot(
    evaluation: Evaluation[Scored], num_bad_evaluations: int, best: BestEvaluation[Scored]
) -> TrainingSnapshot:
    """The training after an evaluation; what comes with the best score is not saved, but made again."""
    values = {part.name: getattr(best.evaluation, part.name) for part in fields(Evaluation) if part.name != "scored"}
    return TrainingSnapshot(evaluation.step, evaluation.is_last, num_bad_evaluations, values, best.weights)


def _best_again(
    model: HeadModel, snapshot: TrainingSnapshot, evaluate: Callable[[], tuple[float, Scored]]
) -> BestEvaluation[Scored]:
    """The best evaluation of a training that goes on, with what comes with its score."""
    weights = _copy_weights(model)
    model.load_state_dict(snapshot.best_weights)
    best = BestEvaluation(Evaluation(**snapshot.best, scored=evaluate()[1]), dict(snapshot.best_weights))
    model.load_state_dict(weights)
    return best


def _batches(features: Features[Any], recipe: RecipeSpec) -> Iterator[NDArray[np.int64]]:
    """Yield batches of whole groups of windows, epoch after epoch."""
    lengths = features.group_lengths
    for epoch in count():
        yield from epoch_batches(lengths, recipe.batch_size, recipe.seed, epoch)


def _step(
    model: HeadModel,
    features: Features[Any],
    windows: NDArray[np.int64],
    recipe: RecipeSpec,
    optimizer: torch.optim.Optimizer,
    step: int,
    learning_rate: float,
    loss: Loss,
) -> Tensor:
    """Make one update; return the loss, still on its device."""
    device = next(model.parameters()).device
    batch = make_batch(features, windows, device)
    torch.manual_seed(derive_key(recipe.seed, "dropout", step))
    with autocast(device, recipe.precision):
        value = loss(model, batch)
    optimizer.zero_grad(set_to_none=True)
    value.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
    set_learning_rate(optimizer, learning_rate)
    optimizer.step()
    return value.detach()


def _copy_weights(model: HeadModel) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


class _Meter:
    """Mean loss and speed since the last evaluation, whose own time does not count."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._losses: list[Tensor] = []
        self._num_examples = 0
        self._begun_at = time.perf_counter()

    def add(self, loss: Tensor, num_examples: int, step: int) -> None:
        """Add a step's loss; every `_CHECK_EVERY_STEPS` steps, raise DivergedError unless the mean is finite."""
        self._losses.append(loss)
        self._num_examples += num_examples
        if step % _CHECK_EVERY_STEPS == 0:
            self._mean(step)

    def read(self, step: int) -> tuple[float, float]:
        """Mean loss, examples a second. Raises: DivergedError."""
        mean = self._mean(step)
        return mean, self._num_examples / (time.perf_counter() - self._begun_at)

    def _mean(self, step: int) -> float:
        mean = float(torch.stack(self._losses).mean())
        if not np.isfinite(mean):
            raise DivergedError(
                f"the loss became {mean} by step {step}; lower learning_rate, raise warmup_ratio or use precision fp32"
            )
        return mean
