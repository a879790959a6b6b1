"""Look-up of word embeddings whose matrix the output layer multiplies as well, with one gradient for both uses.

Shapes: T tokens, V vocabulary, E embedding size.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


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
