"""StableAdamW (Wortsman et al. 2023, "Stable and low-precision training for large-scale vision-language models")."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bert_core.optimizers.moments import MomentOptimizer, updates_of


class StableAdamW(MomentOptimizer):
    """AdamW with Adafactor's update clipping (algorithm 2): a tensor whose second moment lags behind steps less far.

    The learning rate of each tensor, that of its weight decay too, is divided by max(1, RMS), where RMS is the root of
    the mean over the tensor of g² / max(v, ε²). So clipping gradients is not needed as well.
    """

    def update(
        self,
        group: Mapping[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
    ) -> None:
        roots = torch._foreach_sqrt(squares)
        ratios = torch._foreach_clamp_min(roots, group["eps"])
        torch._foreach_reciprocal_(ratios)
        torch._foreach_mul_(ratios, gradients)
        rms = torch._foreach_norm(ratios)
        torch._foreach_div_(rms, [math.sqrt(parameter.numel()) for parameter in parameters])
        torch._foreach_clamp_min_(rms, 1.0)
        updates = updates_of(means, roots, group["eps"])
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        torch._foreach_div_(updates, rms)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])
