"""The loop that fine-tunes one model: packed batches in, the best step's weights out.

Dropout is seeded from (seed, step, part), so that a step computes the same whenever it runs.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from bert_core.counter_random import derive_key
from bert_core.kernels.dropout import seed_dropout
from bert_core.micro_batches import compute_in_parts
from bert_core.optimization import set_learning_rate, unfreeze_top_layers
from orchestrator.base.errors import RunFailedError
from orchestrator.cluster.torch_devices import autocast
from orchestrator.finetuning.batches import make_parts
from orchestrator.finetuning.heads import HEADS, Batch, HeadModel
from orchestrator.finetuning.heads.base import Windows
from orchestrator.finetuning.training_checkpoints import CheckpointedTraining
from orchestrator.specs import RecipeSpec
from orchestrator.tasks.features import Features
from orchestrator.training.batch_order import Schedule, epoch_batches
from orchestrator.training.micro_batches import MicroBatchSize
from orchestrator.training.optimizers import learning_rate_factor_at, optimizer_of

_CHECK_EVERY_STEPS = 20
"""The loss is looked at this often: seldom enough not to hold up a GPU."""

Scored = TypeVar("Scored")
Loss = Callable[[HeadModel, Batch], Tensor]
"""Function that gives a model's loss on a batch, a scalar; on a part of one, a share, to which parts add up."""
logger = logging.getLogger(__name__)


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


def fine_tune(
    model: HeadModel,
    features: Features[Any],
    recipe: RecipeSpec,
    evaluate: Callable[[], tuple[float, Scored]],
    on_evaluation: Callable[[Evaluation[Scored], float], None],
    loss: Loss | None = None,
    checkpoint: CheckpointedTraining | None = None,
) -> Evaluation[Scored]:
    """Train the model by its recipe; it ends with the weights of the best evaluation, which is returned.

    Order, dropout and updates are functions of recipe and data: the same device, thread count and torch give the same
    weights again, bit by bit. Where memory runs out in a step, that step and those after it are computed in smaller
    parts, with the same batch; dropout is drawn for each part.

    Args:
        evaluate: gives the model's score on validation data, higher being better, and what comes with it.
        on_evaluation: told of each evaluation and the best score so far; raising ends the training.
        loss: what is made smaller, of a batch; the labels' loss when left out.
        checkpoint: saves the training after each evaluation, and says from where to go on.

    Raises: DivergedError when the loss is not finite; RunFailedError where memory runs out with a single example;
        CheckpointError when a saved training cannot be used.
    """
    own_loss = HEADS[features.head].compute_loss if loss is None else loss
    training = _Training(model, features, recipe, evaluate, own_loss)
    if checkpoint is not None:
        training.restore(checkpoint)
    model.train()
    num_done, num_steps = training.num_done, training.schedule.num_steps
    lengths, batch_size, seed = features.group_lengths, recipe.batch_size, recipe.seed
    batches = chain.from_iterable(epoch_batches(lengths, batch_size, seed, epoch) for epoch in count())
    for step, groups in enumerate(islice(batches, num_done, num_steps), start=num_done + 1):
        training.step(step, groups)
        if step not in training.evaluation_numbers:
            continue
        evaluation, best = training.evaluate(step)
        on_evaluation(evaluation, best.score)
        if checkpoint is not None:
            training.save(checkpoint, evaluation)
        if evaluation.is_last:
            break
        training.meter.restart()
    assert training.best is not None, "the last step is always evaluated"
    model.load_state_dict(training.best_weights)
    return training.best


class _Training(Generic[Scored]):
    """A training as it stands after a step: optimizer, measurements, the best evaluation so far."""

    def __init__(
        self,
        model: HeadModel,
        features: Features[Any],
        recipe: RecipeSpec,
        score: Callable[[], tuple[float, Scored]],
        loss: Loss,
    ) -> None:
        self.model, self.features, self.recipe, self.score, self.loss = model, features, recipe, score, loss
        self.head = HEADS[features.head]
        self.head.prepare_loss(model, features, recipe)
        num_groups = len(features.group_lengths)
        self.schedule = Schedule(num_groups, recipe.batch_size, recipe.epochs, recipe.evaluations_per_epoch)
        self.evaluation_numbers = {step: number for number, step in enumerate(self.schedule.evaluation_steps, start=1)}
        asked = {"crf": recipe.crf_learning_rate, "layer_pooling": recipe.scalar_mix_learning_rate}
        of_modules = {module: rate for module, rate in asked.items() if rate is not None}
        rates = recipe.layer_learning_rate_decay, recipe.head_learning_rate, of_modules
        self.optimizer = optimizer_of(recipe, model, *rates)
        self.micro_batches = MicroBatches(recipe.micro_batch_size, logger.warning)
        self.meter = _Meter()
        self.best: Evaluation[Scored] | None = None
        """Best evaluation so far, the earlier one where scores are equal."""
        self.best_weights: dict[str, Tensor] = {}
        self.num_done = self.num_bad_evaluations = 0

    def restore(self, checkpoint: CheckpointedTraining) -> None:
        """Go on where a saved training ended, if there is one. Raises: CheckpointError when it cannot be used."""
        found = checkpoint.restore(self.model, self.optimizer)
        if found is None:
            return
        step, values, self.best_weights = found
        self.num_done = self.schedule.num_steps if values["is_last"] else step
        self.num_bad_evaluations = values["num_bad_evaluations"]
        self.micro_batches.size = values.get("micro_batch_size") or self.micro_batches.size
        weights = _copy_weights(self.model)
        self.model.load_state_dict(self.best_weights)
        self.best = Evaluation(**values["best"], scored=self.score()[1])  # what comes with a score is not saved
        self.model.load_state_dict(weights)

    def save(self, checkpoint: CheckpointedTraining, evaluation: Evaluation[Scored]) -> None:
        values = {
            "is_last": evaluation.is_last,
            "num_bad_evaluations": self.num_bad_evaluations,
            "best": {name: value for name, value in vars(self.best).items() if name != "scored"},
            "micro_batch_size": self.micro_batches.size,
        }
        checkpoint.save(evaluation.step, values, self.model, self.optimizer, self.best_weights)

    def learning_rate(self, step: int) -> float:
        return self.recipe.learning_rate * learning_rate_factor_at(self.recipe, step - 1, self.schedule.num_steps)

    def step(self, step: int, groups: Windows) -> None:
        """Make one update from groups of windows. Nobody waits for its loss yet.

        Raises: DivergedError, at times; RunFailedError where memory runs out with a single example.
        """
        recipe = self.recipe
        if recipe.unfreeze_every_epochs is not None:
            num_unfrozen = math.floor((step - 1) / (recipe.unfreeze_every_epochs * self.schedule.steps_per_epoch))
            unfreeze_top_layers(self.model, num_unfrozen)
        forget = partial(self.optimizer.zero_grad, set_to_none=True)
        forget()
        compute = partial(self.forward_and_backward, step)
        value = compute_in_parts(self.micro_batches, groups, step, compute, forget)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), recipe.max_grad_norm)
        set_learning_rate(self.optimizer, self.learning_rate(step))
        self.optimizer.step()
        self.meter.add(value, len(groups), step)

    def forward_and_backward(self, step: int, parts: Sequence[Windows]) -> Tensor:
        """Add the gradient of a step's loss to the model's; returns the loss, for which nobody waits yet.

        Args:
            parts: of the batch, as groups of windows; a single one is the batch.
        """
        windows = [self.features.windows_of(part) for part in parts]
        logits = None
        if len(parts) > 1 and self.head.compares_examples(self.model):
            compute: Loss = getattr(self.loss, "logits", self.head.logits)  # a student's draws its own dropout
            with torch.no_grad():
                logits = torch.cat(list(self._on_parts(step, windows, None, compute)))
        values = []
        for value in self._on_parts(step, windows, logits, self.loss):
            value.backward()  # type: ignore[no-untyped-call]
            values.append(value.detach())
        return values[0] if len(values) == 1 else torch.stack(values).sum()

    def _on_parts(
        self, step: int, windows: Sequence[Windows], logits: Tensor | None, compute: Loss
    ) -> Iterator[Tensor]:
        """Yield what `compute` gives for each part, each time with the dropout of its step and part."""
        device = next(self.model.parameters()).device
        for number, batch in enumerate(make_parts(self.model, self.features, windows, logits)):
            seed_part(self.recipe.seed, step, number, device)
            with autocast(device, self.recipe.precision):
                value = compute(self.model, batch)
            yield value

    def evaluate(self, step: int) -> tuple[Evaluation[Scored], Evaluation[Scored]]:
        """Score the model after a step; returns this evaluation, and the best one so far. Raises: DivergedError."""
        train_loss, examples_per_s = self.meter.read(step)
        score, scored = self.score()
        is_better = self.best is None or score > self.best.score
        self.num_bad_evaluations = 0 if is_better else self.num_bad_evaluations + 1
        evaluation = Evaluation(
            step=step,
            number=self.evaluation_numbers[step],
            score=score,
            scored=scored,
            train_loss=train_loss,
            learning_rate=self.learning_rate(step),
            examples_per_s=examples_per_s,
            is_last=step == self.schedule.num_steps or self.num_bad_evaluations == self.recipe.patience,
        )
        if self.best is None or is_better:
            self.best, self.best_weights = evaluation, _copy_weights(self.model)
        return evaluation, self.best


def seed_part(seed: int, step: int, number: int, device: torch.device) -> None:
    """Seed the dropout of a step's part; of the first one as that of a whole batch, which it may be."""
    seed_dropout(derive_key(seed, "dropout", step, *([number] if number else [])), device)


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
        mean = self._mean(step)
        return mean, self._num_examples / (time.perf_counter() - self._begun_at)

    def _mean(self, step: int) -> float:
        mean = float(torch.stack(self._losses).mean())
        if not np.isfinite(mean):
            raise DivergedError(
                f"the loss became {mean} by step {step}; lower learning_rate, raise warmup_ratio or use precision fp32"
            )
        return mean


class MicroBatches(MicroBatchSize[Windows]):
    """Size of the micro-batches of a fine-tuning. What is cut are numbers of groups of windows, a group an example."""

    field = "recipe.micro_batch_size"
    whole = "batch"
    remedy = (
        "lower recipe.max_seq_length, use a smaller model or, in a sweep, let fewer trials share a card "
        "(execution.gpus_per_trial 1)"
    )

    def split(self, batch: Windows) -> list[Windows]:
        size = self.size or len(batch)
        return [batch[place : place + size] for place in range(0, len(batch), size)]

    def num_examples(self, part: Windows) -> int:
        return len(part)
