"""Base of optimizers that follow Adam's two moments by a rule of their own, as foreach operations.

What a step does is launched for a whole group at once, and nothing of it waits for the device.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class MomentOptimizer(Optimizer):
    """Keeps running means of gradients and of their squares (Kingma and Ba 2015); a subclass says what they change.

    The means are kept corrected: β_t = β (1 − β^(t−1)) / (1 − β^t) in place of β gives m / (1 − β^t) at once, without
    a division in each step (Shazeer and Stern 2018, section 7.1).

    Args:
        bias_correction: whether it is so; otherwise both means begin at 0 and are taken as they are.
    """

    def __init__(
        self,
        groups: Iterable[Mapping[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        bias_correction: bool = True,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "bias_correction": bias_correction}
        super().__init__([dict(group) for group in groups], defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        assert closure is None, "no caller needs one"
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                gradients = [parameter.grad for parameter in parameters]
                self.update(group, parameters, gradients, *self._moments(group, parameters, gradients))

    @abstractmethod
    def update(
        self,
        group: Mapping[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
    ) -> None:
        """Change parameters in place, by the means of their gradients and of the gradients' squares."""

    def _moments(
        self, group: Mapping[str, Any], parameters: Sequence[Tensor], gradients: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        for parameter in parameters:
            if not self.state[parameter]:
                zeros = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                self.state[parameter] = {"step": 0, **zeros}
        states = [self.state[parameter] for parameter in parameters]
        for state in states:
            state["step"] = int(state["step"]) + 1  # a tensor of the host's after loading
        means, squares = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        betas = group["betas"]
        if group["bias_correction"]:
            shares = [[1 - _corrected(beta, state["step"]) for state in states] for beta in betas]
        else:
            shares = [[1 - beta] * len(states) for beta in betas]
        torch._foreach_lerp_(means, gradients, shares[0])
        torch._foreach_mul_(squares, [1 - share for share in shares[1]])
        torch._foreach_addcmul_(squares, gradients, gradients, shares[1])
        return means, squares


def updates_of(means: list[Tensor], roots: tuple[Tensor, ...], eps: float) -> tuple[Tensor, ...]:
    """Adam's updates m / (√v + ε), in place of the roots √v: on CPUs new memory takes longer than arithmetic."""
    torch._foreach_add_(roots, eps)
    torch._foreach_reciprocal_(roots)
    torch._foreach_mul_(roots, means)
    return roots


def _corrected(beta: float, step: int) -> float:
    """Decay that keeps a running mean corrected, in a step counted from 1."""
    return float(beta * (1 - beta ** (step - 1)) / (1 - beta**step))
