"""Loss of a fine-tuning step and its gradient: of a whole batch, or of its parts, which add up to the same.

Dropout is seeded from (seed, step, part), so that a step computes the same whenever it runs.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bert_core.counter_random import derive_key
from bert_core.kernels.dropout import seed_dropout
from orchestrator.finetuning.batches import make_parts
from orchestrator.finetuning.heads import HEADS, Batch, HeadModel
from orchestrator.finetuning.logits import autocast
from orchestrator.specs import RecipeSpec
from orchestrator.tasks import Features

Loss = Callable[[HeadModel, Batch], Tensor]
"""Function that gives a model's loss on a batch, a scalar; on a part of one, a share, to which parts add up."""


@runtime_checkable
class LossOfLogits(Protocol):
    """Loss that computes the model's logits in its own way."""

    def logits(self, model: HeadModel, batch: Batch) -> Tensor:
        """Logits of a batch, with the same dropout as in the loss."""


def forward_and_backward(
    model: HeadModel,
    features: Features[Any],
    recipe: RecipeSpec,
    loss: Loss,
    step: int,
    parts: Sequence[NDArray[np.int64]],
) -> Tensor:
    """Add the gradient of a step's loss to the model's; returns the loss, for which nobody waits yet.

    Args:
        parts: of the batch, as groups of windows; a single one is the batch.
    """
    device = next(model.parameters()).device
    windows = [features.windows_of(part) for part in parts]
    logits = None
    if len(parts) > 1 and HEADS[features.head].compares_examples(model):
        logits = _compute_all_logits(model, features, recipe, loss, step, windows)
    values = []
    for number, batch in enumerate(make_parts(model, features, windows, logits)):
        seed_part(recipe.seed, step, number, device)
        with autocast(device, recipe.precision):
            value = loss(model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        values.append(value.detach())
    return values[0] if len(values) == 1 else torch.stack(values).sum()


@torch.no_grad()
def _compute_all_logits(
    model: HeadModel,
    features: Features[Any],
    recipe: RecipeSpec,
    loss: Loss,
    step: int,
    windows: Sequence[NDArray[np.int64]],
) -> Tensor:
    """Logits of all parts of a step's batch, with the dropout that each part's loss will draw."""
    device = next(model.parameters()).device
    compute = loss.logits if isinstance(loss, LossOfLogits) else HEADS[features.head].logits
    found = []
    for number, batch in enumerate(make_parts(model, features, windows)):
        seed_part(recipe.seed, step, number, device)
        with autocast(device, recipe.precision):
            found.append(compute(model, batch))
    return torch.cat(found)


def seed_part(seed: int, step: int, number: int, device: torch.device) -> None:
    """Seed the dropout of a step's part; of the first one as that of a whole batch, which it may be."""
    seed_dropout(derive_key(seed, "dropout", step, *([number] if number else [])), device)
