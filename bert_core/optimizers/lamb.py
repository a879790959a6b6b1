"""LAMB (You et al. 2020, "Large batch optimization for deep learning: training BERT in 76 minutes")."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bert_core.optimizers.moments import MomentOptimizer, updates_of


class Lamb(MomentOptimizer):
    """AdamW's update, weight decay included, as long as the weights that it changes (algorithm 2, φ(z) = z).

    Each matrix steps by the learning rate times its own norm. Biases and LayerNorm step as in AdamW, as in the authors'
    code, and so does a matrix of zeros.
    """

    def update(
        self,
        group: Mapping[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
    ) -> None:
        updates = updates_of(means, torch._foreach_sqrt(squares), group["eps"])
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        matrices = [place for place, parameter in enumerate(parameters) if parameter.dim() > 1]
        if matrices:
            chosen = [updates[place] for place in matrices]
            weight_norms = torch.stack(torch._foreach_norm([parameters[place] for place in matrices]))
            update_norms = torch.stack(torch._foreach_norm(chosen))
            ratios = torch.where((weight_norms > 0) & (update_norms > 0), weight_norms / update_norms, 1.0)
            torch._foreach_mul_(chosen, list(ratios.unbind()))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])
