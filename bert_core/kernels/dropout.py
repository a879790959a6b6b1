"""Dropout (Srivastava et al. 2014), inverted: elements that are kept grow by 1 / (1 − p).

On CPUs torch's own dropout draws a 32-bit number for each element, one after the other, which costs as much as six
copies of the tensor; here four elements share one 64-bit number, and p is rounded to 1/65536.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 1 << 16


def seed_dropout(seed: int, device: torch.device) -> None:
    """Seed the generators that dropout on a device draws from, to the numbers of `torch.manual_seed`.

    That one also tells the backends of all other devices, which takes a hundred times as long.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        number = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[number].manual_seed(seed)


class Dropout(nn.Module):
    """Dropout layer, active in training only; it draws from torch's global generator."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """Compute residual + dropout(x), in one pass over memory."""
        p = self.p if self.training else 0.0
        if p == 0.0 or not _draws_here(x):
            return residual + F.dropout(x, p)
        x = x.to(residual.dtype)
        return torch.addcmul(residual, x, bernoulli_keep_mask(x.shape, p, x.dtype), value=1 / (1 - p))


def dropout(x: Tensor, p: float) -> Tensor:
    if p == 0.0 or not _draws_here(x):
        return F.dropout(x, p)
    return x * bernoulli_keep_mask(x.shape, p, x.dtype).mul_(1 / (1 - p))


def _draws_here(x: Tensor) -> bool:
    """Whether the numbers are drawn here: on a CPU, unless a compiler makes one loop of drawing and what follows."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def bernoulli_keep_mask(shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
    """Draw ones and zeros on the CPU, zero with probability p."""
    count = math.prod(shape)
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    bits = words.view(torch.int16)[:count].view(shape)  # uniform over −32768 … 32767
    return bits.ge_(round(p * _LEVELS) - _LEVELS // 2).to(dtype)
