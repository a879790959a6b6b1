"""Output layer over a vocabulary and its cross entropy in one function; the logits never exist all at once. Look-up of
the word embeddings whose matrix that layer multiplies as well, with one gradient for both uses.

Shapes: T tokens, P predicted positions, H hidden, E embedding size, V vocabulary, W width of a row of logits, V with
padding.

A block of logits is made, turned into its own gradient (softmax − one-hot) in place, and used up for the gradients of
`hidden`, `weight` and `bias`, all in the forward pass: the logits are the largest tensor of a small model's step, and
this way they are written twice instead of some ten times.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bert_core.constants import IGNORE_INDEX
from bert_core.kernels.linear import product, weight_gradient

# Rows of a block whose float32 copies stay in a CPU's second-level cache from maximum to gradient.
_CPU_CACHED_ROWS = 8
# On a GPU without Triton: enough rows to fill it, few enough that their float32 copies need little memory.
_GPU_EAGER_ROWS = 512
# Compute capability from which Triton is supported: Ampere.
_TRITON_CAPABILITY = (8, 0)
# Logits of the row that the kernel is tried on, the last one padding: in bf16 and aligned, as those of a training.
_PROBE_WIDTH = 64

FusedKernel = Callable[[Tensor, Tensor, int, bool], tuple[Tensor, Tensor]]
"""`fused_cross_entropy.cross_entropy_in_place`."""


@dataclass(frozen=True)
class Totals:
    """Float32 sums over the blocks of a batch, added to in place."""

    loss: Tensor
    num_correct: Tensor
    d_bias: Tensor
    """(V,) gradient of the output layer's bias."""


def add_block(logits: Tensor, labels: Tensor, num_columns: int, totals: Totals, with_gradients: bool) -> None:
    """Add a block's loss and right guesses to the totals: (R, W), (R,). Logits behind `num_columns`, V, are padding.

    With gradients the logits become softmax − one-hot, 0 in padding, which is added up for the bias too; without, they
    are used up.
    """
    kernel = _fused_kernel(logits.device)
    if kernel is None:
        _add_eagerly(logits[:, :num_columns], labels, totals, with_gradients)
        logits[:, num_columns:] = 0.0
        return
    losses, is_right = kernel(logits, labels, num_columns, with_gradients)  # (R,) each
    totals.loss.add_(losses.sum())
    totals.num_correct.add_(is_right.sum())
    if with_gradients:
        totals.d_bias.add_(logits.sum(dim=0, dtype=torch.float32)[:num_columns])


def _add_eagerly(logits: Tensor, labels: Tensor, totals: Totals, with_gradients: bool) -> None:
    is_counted, columns = _neutralize_ignored_rows(logits, labels)
    size = _GPU_EAGER_ROWS if logits.is_cuda else _CPU_CACHED_ROWS
    cache = logits.new_empty((min(size, len(logits)), logits.shape[1]), dtype=torch.float32)
    ones = cache.new_ones(len(cache))
    minus_ones = -ones[:, None]  # (R, 1)
    parts = (torch.split(each, size) for each in (logits, columns, is_counted))
    for rows, own_columns, counted in zip(*parts, strict=True):
        scores = rows if rows.dtype == torch.float32 else cache[: len(rows)].copy_(rows)
        tops, own = scores.amax(dim=-1, keepdim=True), scores.gather(1, own_columns)  # (R, 1)
        exponentials = scores.sub_(tops).exp_()
        sums = exponentials.sum(dim=-1, keepdim=True)
        totals.loss.add_((tops + sums.log() - own).sum())
        totals.num_correct.add_(((own == tops).squeeze(1) & counted).sum())
        if with_gradients:
            probabilities = exponentials.mul_(sums.reciprocal())
            gradients = probabilities.scatter_add_(1, own_columns, minus_ones[: len(rows)])
            totals.d_bias.addmv_(gradients.T, ones[: len(rows)])
            rows.copy_(gradients)  # nothing to do where they are the rows


def _neutralize_ignored_rows(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Make ignored rows certain of column 0: (R, V), (R,) → which rows count (R,), the labels' columns (R, 1).

    Such a row's softmax is exactly its one-hot row, so that its loss and its gradient are exactly 0. One number a row
    is written for that, in place of a mask over all of them.
    """
    is_counted = labels != IGNORE_INDEX  # (R,)
    columns = labels.where(is_counted, 0)[:, None]  # (R, 1)
    own = logits.gather(1, columns).where(is_counted[:, None], torch.finfo(logits.dtype).max)
    rows = torch.arange(len(logits), device=logits.device)[:, None]  # (R, 1)
    logits[rows, columns] = own  # `scatter_` would copy a whole matrix in bf16 on a CPU (torch 2.13)
    return is_counted, columns


@cache
def _fused_kernel(device: torch.device) -> FusedKernel | None:
    """Triton's kernel, or None where there is none or it does not run, which is found out on a single row."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < _TRITON_CAPABILITY:
        return None
    try:
        from bert_core.kernels.fused_cross_entropy import cross_entropy_in_place
    except ImportError:
        return None
    logits = torch.zeros(1, _PROBE_WIDTH, dtype=torch.bfloat16, device=device)
    label = torch.zeros(1, dtype=torch.int64, device=device)
    try:
        cross_entropy_in_place(logits, label, _PROBE_WIDTH - 1, True)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of the compiler, the linker or Triton, whose errors have no class in common
        warnings.warn(
            f"Triton cannot build the kernel of the cross entropy ({error}); the loss is computed by PyTorch's own "
            "operations, which takes longer. Triton needs a C compiler and Python's header files on this machine",
            stacklevel=2,
        )
        return None
    return cross_entropy_in_place


# The weight is read anew for each block, so blocks are large: those of a usual batch's predictions, or a few.
_CPU_BLOCK_ROWS = 512
_GPU_BLOCK_BYTES = 512 * 2**20
# The vocabulary's multiple in products that pad it. Tensor cores and a CPU's matrix units want rows that begin at
# multiples of 16 bytes, and tiles that are full: BERT's 30,522 pieces are neither.
_COLUMN_MULTIPLE = 64


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

    The product is one of a padded vocabulary where that of the loss is.
    """
    dtype = _product_dtype(hidden)
    multiple = _column_multiple(weight, dtype)
    if len(bias) % multiple == 0:
        return F.linear(hidden, weight, bias)
    return F.linear(hidden, _padded(weight, dtype, multiple), _padded(bias, dtype, multiple))[..., : len(bias)]


def _product_dtype(hidden: Tensor) -> torch.dtype:
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype


def _column_multiple(weight: Tensor, dtype: torch.dtype) -> int:
    """1 on a CPU where the weight would be copied for the padding alone."""
    return 1 if weight.device.type == "cpu" and weight.dtype == dtype else _COLUMN_MULTIPLE


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, with_gradients: bool
    ) -> tuple[Tensor, Tensor]:
        dtype = _product_dtype(hidden)
        multiple = _column_multiple(weight, dtype)
        with torch.autocast(hidden.device.type, enabled=False):
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


def look_up(words: nn.Embedding, input_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Look up words, and give the matrix for the output layer of the same pass: (T,) → (T, E), (V, E).

    On a CPU the gradient of the look-up is added to the output layer's in place. As a matrix of its own it would be
    written once and read once, as large as the vocabulary, for the few rows of a batch. So the matrix is for
    `linear_cross_entropy_sums`, whose gradient nobody else holds. On a GPU the gradient stays PyTorch's, which adds up
    in one order.
    """
    if input_ids.is_cuda:
        return words(input_ids), words.weight
    return _LookUp.apply(words.weight, input_ids, words.padding_idx)  # type: ignore[no-any-return, no-untyped-call]


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, input_ids: Tensor, padding_idx: int | None) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(input_ids)
        ctx.shape, ctx.padding_idx = weight.shape, padding_idx
        ctx.set_materialize_grads(False)
        return weight.index_select(0, input_ids), weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_rows: Tensor | None, d_weight: Tensor | None) -> tuple[Tensor | None, None, None]:
        if d_rows is None:
            return d_weight, None, None
        (input_ids,) = ctx.saved_tensors
        if ctx.padding_idx is not None:
            d_rows = d_rows.masked_fill((input_ids == ctx.padding_idx)[:, None], 0.0)
        if d_weight is None:
            d_weight = d_rows.new_zeros(ctx.shape)
        return d_weight.index_add_(0, input_ids, d_rows), None, None
