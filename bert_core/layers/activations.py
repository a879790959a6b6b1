"""Activation functions by their names in configurations, and the gated linear unit that is made of one."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": F.tanh,
}


class GatedLinearUnit(nn.Module):
    """Activation of one half of its input, times the other half: act(x·W)·(x·V) (Shazeer 2020).

    The input holds the two products x·W and x·V side by side: (…, 2I) → (…, I).
    """

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, products: Tensor) -> Tensor:
        """Gate the first half of the last dimension by the second: (…, 2I) → (…, I)."""
        inner, gate = products.chunk(2, dim=-1)
        return self.activation(inner) * gate
