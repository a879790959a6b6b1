"""Muon (Jordan et al. 2024) for matrices of hidden layers, scaled as in Moonlight (Liu et al. 2025); AdamW elsewhere.

Shapes: P parameters of one shape, M matrices that lie above one another in each, A rows and B columns of a matrix.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bert_core.optimizers.adamw import AdamW

NUM_MATRICES = "num_matrices"
"""Key of a parameter group of hidden matrices: how many lie above one another in each of them."""
_MOMENTUM = 0.95
_NUM_ITERATIONS, _COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)
"""Newton–Schulz iterations and their quintic, which takes singular values from 0.01 on to between 0.7 and 1.2."""
_ADAMW_RMS = 0.2
"""Root mean square of AdamW's updates, as Moonlight measured it (section 2.2)."""


class Muon(Optimizer):
    """Orthogonalized momentum for groups with `num_matrices`, AdamW for all others: embeddings, norms, biases, heads.

    An update of hidden matrices is U Vᵀ of the Nesterov momentum U S Vᵀ, times 0.2 √max(A, B): its root mean square is
    then that of AdamW's, so that both parts go well with the same learning rate and weight decay. `torch.optim.Muon`
    computes the same, one matrix after the other and always in bf16. Here all of a shape are multiplied at once, on
    CPUs in fp32. Queries, keys and values, which one matrix holds, are orthogonalized apart, as are the halves of a
    gated layer.
    """

    def __init__(
        self,
        groups: Iterable[Mapping[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        bias_correction: bool = True,
    ) -> None:
        self._adamw = AdamW(groups, lr, betas, eps, bias_correction)
        super().__init__(self._adamw.param_groups, self._adamw.defaults)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        assert closure is None, "no caller needs one"
        for group in self.param_groups:
            if NUM_MATRICES in group:
                self._step_matrices(group)
        # Anew in each step, as loading a state replaces both.
        self._adamw.param_groups = [group for group in self.param_groups if NUM_MATRICES not in group]
        self._adamw.state = self.state
        self._adamw.step()

    @torch.no_grad()
    def _step_matrices(self, group: dict[str, Any]) -> None:
        with_gradient = [parameter for parameter in group["params"] if parameter.grad is not None]
        for shape in sorted({parameter.shape for parameter in with_gradient}):
            parameters = [parameter for parameter in with_gradient if parameter.shape == shape]
            gradients = [parameter.grad for parameter in parameters]
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
            buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
            torch._foreach_lerp_(buffers, gradients, 1 - _MOMENTUM)
            momentum = torch.stack(torch._foreach_lerp(gradients, buffers, _MOMENTUM))  # (P, M·A, B)
            matrices = momentum.reshape(len(parameters), group[NUM_MATRICES], -1, shape[1])  # (P, M, A, B)
            updates = orthogonalized(matrices)
            rate = group["lr"] * _ADAMW_RMS * math.sqrt(max(updates.shape[-2:]))
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parameters, list(updates.reshape(-1, *shape).unbind()), alpha=-rate)


def orthogonalized(matrices: Tensor) -> Tensor:
    """Compute about U Vᵀ of each matrix U S Vᵀ: (…, A, B) → (…, A, B), by products alone, on GPUs in bf16."""
    is_tall = matrices.size(-2) > matrices.size(-1)
    x: Tensor = matrices.bfloat16() if matrices.is_cuda else matrices
    x = x.mT if is_tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_NUM_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if is_tall else x).to(matrices.dtype)
