"""Cross entropy of a block of logits in one Triton kernel, which leaves the logits' gradient in their place.

Triton comes with PyTorch's builds for CUDA and with no other, so this module is imported where a GPU computes.

It is written here because the libraries that have such a kernel wait for the device or compute more, and GPU machines
would have to have them: Liger-Kernel's linear cross entropy counts the labels with `.item()`, and at BERT's sizes cuts
a batch into some forty blocks; that of Apple's cut-cross-entropy, made for vocabularies whose logits do not fit into
memory, makes them again in the backward pass. This is Liger-Kernel's two sweeps without the rest.

Shapes: R rows of a block, V vocabulary, W width of a row, V with padding.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from bert_core.constants import IGNORE_INDEX

_BLOCK_COLUMNS = 4096
"""Logits of a row that a program holds at a time: sixteen for each thread, in two loads of 16 bytes."""
_NUM_WARPS = 8


def cross_entropy_in_place(
    logits: Tensor, labels: Tensor, num_columns: int, with_gradients: bool
) -> tuple[Tensor, Tensor]:
    """Compute each row's loss and whether its guess is right, both float32: (R, W), (R,) int64 → (R,), (R,).

    With gradients, softmax − one-hot is written over the first `num_columns` logits of each row, V, and 0 over the
    rest, which are padding. A row with a label of -100 gets a loss, a guess and a gradient of 0.
    """
    assert logits.stride(1) == 1
    assert labels.is_contiguous()
    losses, is_right = torch.empty(2, len(labels), dtype=torch.float32, device=logits.device).unbind()
    if len(labels):
        _rows_kernel[(len(labels),)](
            logits,
            labels,
            losses,
            is_right,
            logits.stride(0),
            num_columns=num_columns,
            width=logits.shape[1],
            ignored=IGNORE_INDEX,
            with_gradients=with_gradients,
            block=_BLOCK_COLUMNS,
            num_warps=_NUM_WARPS,
        )
    return losses, is_right


@triton.jit  # type: ignore[untyped-decorator]
def _rows_kernel(  # type: ignore[no-untyped-def]
    logits,
    labels,
    losses,
    is_right,
    row_stride,
    num_columns: tl.constexpr,
    width: tl.constexpr,
    ignored: tl.constexpr,
    with_gradients: tl.constexpr,
    block: tl.constexpr,
):
    """Sweep over one row for its log-sum-exp, and again for its gradient.

    The logits are read from the L2 cache the second time.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    label = tl.load(labels + row)
    is_counted = label != ignored
    # Read before the first reduction, which all threads wait at: the second sweep writes to this place.
    own = tl.load(logits + label, mask=is_counted, other=0.0).to(tl.float32)
    columns = tl.arange(0, block)
    top = float("-inf")
    total = 0.0  # Σ exp(logit − top) of the columns so far
    for begin in range(0, width, block):
        place = begin + columns
        # Memory is masked by the width, which lets threads load several columns at a time; padding becomes −∞ after it.
        x = tl.load(logits + place, mask=place < width, other=float("-inf")).to(tl.float32)
        x = tl.where(place < num_columns, x, float("-inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    tl.store(losses + row, tl.where(is_counted, tl.log(total) + top - own, 0.0))
    tl.store(is_right + row, tl.where(is_counted & (own == top), 1.0, 0.0))
    if with_gradients:
        for begin in range(0, width, block):
            place = begin + columns
            x = tl.load(logits + place, mask=place < width, other=float("-inf")).to(tl.float32)
            x = tl.where(place < num_columns, x, float("-inf"))
            gradient = tl.exp(x - top) / total - tl.where(place == label, 1.0, 0.0)
            gradient = tl.where(is_counted, gradient, 0.0)
            tl.store(logits + place, gradient.to(logits.dtype.element_ty), mask=place < width)
