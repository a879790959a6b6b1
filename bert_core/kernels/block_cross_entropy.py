"""Cross entropy of a block of logits, which become their own gradient: by one Triton kernel on a GPU, else eagerly.

Shapes: R rows of a block, V vocabulary, W width of a row, V with padding.
"""

import subprocess
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from bert_core.constants import IGNORE_INDEX

# Rows of a block that stay in a CPU's second-level cache from maximum to gradient.
_CPU_CACHED_ROWS = 32
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

    With gradients the logits become softmax − one-hot, 0 in padding, which is added up for the bias too.
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
    is_counted, columns = _silence_ignored(logits, labels)
    size = _GPU_EAGER_ROWS if logits.is_cuda else _CPU_CACHED_ROWS
    cached = (torch.split(each, size) for each in (logits, columns, is_counted))
    for rows, own_columns, counted in zip(*cached, strict=True):
        scores = rows.float()
        tops, own = scores.amax(dim=-1), scores.gather(1, own_columns).squeeze(1)
        probabilities = scores.softmax(dim=-1)
        # The largest probability is 1 / Σ exp(score − top): the rest of the logarithm of the softmax's total.
        totals.loss.add_((tops - probabilities.amax(dim=-1).log() - own).sum())
        totals.num_correct.add_(((own == tops) & counted).sum())
        if with_gradients:
            probabilities.scatter_add_(1, own_columns, probabilities.new_full(own_columns.shape, -1.0))
            totals.d_bias.add_(probabilities.sum(dim=0))
            rows.copy_(probabilities)


def _silence_ignored(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Make ignored rows certain of column 0: (R, V), (R,) → which rows count (R,), the labels' columns (R, 1).

    Such a row's softmax is exactly its one-hot row, so that its loss and its gradient are exactly 0. One number a row
    is written for that, in place of a mask over all of them.
    """
    is_counted = labels != IGNORE_INDEX  # (R,)
    columns = labels.where(is_counted, 0)[:, None]  # (R, 1)
    own = logits.gather(1, columns).where(is_counted[:, None], torch.finfo(logits.dtype).max)
    logits.scatter_(1, columns, own)
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
    building_errors: tuple[type[Exception], ...] = (OSError, RuntimeError, subprocess.SubprocessError)
    try:
        cross_entropy_in_place(logits, label, _PROBE_WIDTH - 1, True)
    except building_errors + _triton_errors() as error:
        warnings.warn(
            f"Triton cannot build the kernel of the cross entropy ({error}); the loss is computed by PyTorch's own "
            "operations, which takes longer. Triton needs a C compiler and Python's header files on this machine",
            stacklevel=2,
        )
        return None
    return cross_entropy_in_place


def _triton_errors() -> tuple[type[Exception], ...]:
    """Triton's own errors of compiling and launching, which are no RuntimeError; none of them where it has no such."""
    try:
        from triton.errors import TritonError
    except ImportError:
        return ()
    return (TritonError,)
