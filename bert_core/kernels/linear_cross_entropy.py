"""Output layer over a vocabulary and its cross entropy in one function; the logits never exist all at once.

Shapes: P predicted positions, H hidden, V vocabulary, W width of a row of logits, V with padding.

A block of logits is made, turned into its own gradient (softmax − one-hot) in place, and used up for the gradients of
`hidden`, `weight` and `bias`, all in the forward pass: the logits are the largest tensor of a small model's step, and
this way they are written twice instead of some ten times.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from bert_core.constants import IGNORE_INDEX
from bert_core.kernels.block_cross_entropy import Totals, add_block
from bert_core.kernels.linear import product, weight_gradient

# The weight is read anew for each block, so blocks are large: those of a usual batch's predictions, or a few.
_CPU_BLOCK_ROWS = 512
_GPU_BLOCK_BYTES = 512 * 2**20
# The vocabulary's multiple in products. Tensor cores want rows that begin at multiples of 16 bytes, and tiles that are
# full: BERT's 30,522 pieces are neither. On a CPU padding may save time as well, but would change the bits of runs.
_CPU_COLUMN_MULTIPLE = 1
_GPU_COLUMN_MULTIPLE = 64


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


def vocabulary_logits(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute logits over a vocabulary, with gradients: (P, H), (V, H), (V,) → (P, V).

    On a GPU the product is one of a padded vocabulary, as in the loss.
    """
    device, multiple = hidden.device.type, _column_multiple(hidden.device.type)
    if len(bias) % multiple == 0:
        return F.linear(hidden, weight, bias)
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    return F.linear(hidden, _padded(weight, dtype, multiple), _padded(bias, dtype, multiple))[..., : len(bias)]


def _column_multiple(device: str) -> int:
    return _CPU_COLUMN_MULTIPLE if device == "cpu" else _GPU_COLUMN_MULTIPLE


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, with_gradients: bool
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        multiple = _column_multiple(device)
        with torch.autocast(device, enabled=False):
            operands = hidden.to(dtype), _padded(weight, dtype, multiple), _padded(bias, dtype, multiple)
            loss, correct, gradients = _sums(*operands, labels, len(bias), with_gradients)
        ctx.gradients = gradients
        ctx.mark_non_differentiable(correct)
        return loss, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("the loss of a vocabulary goes backward once; compute it again for another gradient")
        # In place: a second matrix of the vocabulary's size would be one more to allocate and to write.
        return *(gradient.mul_(d_loss) for gradient in gradients), None, None


def _padded(values: Tensor, dtype: torch.dtype, multiple: int) -> Tensor:
    """Convert to a type, with rows of zeros up to a multiple, in one copy: (V, …) → (W, …)."""
    num_missing = -len(values) % multiple
    if num_missing == 0:
        return values.to(dtype)
    padded = values.new_empty((len(values) + num_missing, *values.shape[1:]), dtype=dtype)
    padded[: len(values)] = values
    padded[len(values) :] = 0.0
    return padded


def _sums(
    hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, num_columns: int, with_gradients: bool
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Sum a batch's loss and right guesses: (P, H), (W, H), (W,), (P,) → two scalars, gradients (P, H) (V, H) (V,)."""
    loss, correct = hidden.new_zeros(2, dtype=torch.float32).unbind()
    totals = Totals(loss, correct, d_bias=bias.new_zeros(num_columns, dtype=torch.float32))
    d_hidden: list[Tensor] = []
    d_weight: Tensor | None = None
    size = _block_rows(weight)
    for x, block_labels in zip(torch.split(hidden, size), torch.split(labels, size), strict=True):
        logits = product(x, weight, bias)  # (rows of a block, W)
        add_block(logits, block_labels, num_columns, totals, with_gradients)
        if with_gradients:
            d_hidden.append(product(logits, weight.T))
            part = weight_gradient(logits, x)  # (W, H); only a sum over blocks needs more digits than a product has
            d_weight = part if d_weight is None else d_weight.float().add_(part)
    if d_weight is None:
        return loss, correct, ()
    return loss, correct, (torch.cat(d_hidden), d_weight[:num_columns], totals.d_bias)


def _block_rows(weight: Tensor) -> int:
    if weight.device.type == "cpu":
        return _CPU_BLOCK_ROWS
    row_bytes = len(weight) * weight.element_size()
    return max(64, _GPU_BLOCK_BYTES // row_bytes // 64 * 64)
