"""Output layer over a vocabulary and its cross entropy in one function; the logits never exist all at once.

Shapes: P predicted positions, H hidden, V vocabulary.

A block of logits is made, turned into its own gradient (softmax − one-hot) a few cached rows at a time, and used up for
the gradients of `hidden`, `weight` and `bias`, all in the forward pass: the logits are the largest tensor of a small
model's step, and this way they are written twice instead of some ten times.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bert_core.constants import IGNORE_INDEX
from bert_core.kernels.linear import product, weight_gradient

# The weight is read anew for each block, so blocks are large: those of a usual batch's predictions, or a few.
_BLOCK_ROWS = 512
# Rows of a block that stay in the second-level cache from maximum to gradient.
_CACHED_ROWS = 32


def linear_cross_entropy_sums(
    hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute summed cross entropy, right guesses and number of labels: (P, H), (V, H), (V,), (P,) → three scalars.

    The scalars are float32. A label whose logit equals the largest counts as guessed; a label of -100 counts nowhere,
    and its row of `hidden`, which may hold any finite values, gets a gradient of 0. Under autocast the products are in
    its type, while the softmax and the sums are in float32. Nothing waits for the device.
    """
    loss, correct = _LinearCrossEntropy.apply(hidden, weight, bias, labels, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return loss, correct, (labels != IGNORE_INDEX).sum(dtype=torch.float32)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, with_gradients: bool
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        with torch.autocast(device, enabled=False):
            operands = hidden.to(dtype), weight.to(dtype), bias.to(dtype)
            loss, correct, gradients = _sums(*operands, labels, with_gradients)
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        return *(gradient * d_loss for gradient in ctx.saved_tensors), None, None


def _sums(
    hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, with_gradients: bool
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    loss, correct = hidden.new_zeros(2, dtype=torch.float32).unbind()
    d_hidden: list[Tensor] = []
    d_weight: Tensor | None = None
    d_bias = torch.zeros_like(bias, dtype=torch.float32)
    cached_rows = _CACHED_ROWS if hidden.device.type == "cpu" else _BLOCK_ROWS
    for x, block_labels in zip(torch.split(hidden, _BLOCK_ROWS), torch.split(labels, _BLOCK_ROWS), strict=True):
        logits = product(x, weight, bias)  # (rows of a block, V)
        is_counted, columns = _silence_ignored(logits, block_labels)
        for rows, own_columns, counted in zip(
            *(torch.split(each, cached_rows) for each in (logits, columns, is_counted)), strict=True
        ):
            scores = rows.float()
            tops, own = scores.amax(dim=-1), scores.gather(1, own_columns).squeeze(1)
            probabilities = scores.softmax(dim=-1)
            # The largest probability is 1 / Σ exp(score − top): the rest of the logarithm of the softmax's total.
            loss += (tops - probabilities.amax(dim=-1).log() - own).sum()
            correct += ((own == tops) & counted).sum()
            if with_gradients:
                probabilities.scatter_add_(1, own_columns, probabilities.new_full(own_columns.shape, -1.0))
                d_bias += probabilities.sum(dim=0)
                rows.copy_(probabilities)
        if with_gradients:
            d_hidden.append(product(logits, weight.T))
            part = weight_gradient(logits, x)  # (V, H); only a sum over blocks needs more digits than a product has
            d_weight = part if d_weight is None else d_weight.float().add_(part)
    return loss, correct, () if d_weight is None else (torch.cat(d_hidden), d_weight, d_bias)


def _silence_ignored(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Make ignored rows certain of column 0: (rows, V), (rows,) → which rows count (rows,), labels' columns (rows, 1).

    Such a row's softmax is exactly its one-hot row, so that its loss and its gradient are exactly 0. One number a row
    is written for that, in place of a mask over all of them.
    """
    is_counted = labels != IGNORE_INDEX  # (rows,)
    columns = labels.where(is_counted, 0)[:, None]  # (rows, 1)
    own = logits.gather(1, columns).where(is_counted[:, None], torch.finfo(logits.dtype).max)
    logits.scatter_(1, columns, own)
    return is_counted, columns
