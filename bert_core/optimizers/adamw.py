"""AdamW (Loshchilov and Hutter 2019) by torch's fused kernel, which does a step in one pass over memory."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

_UNCORRECTED_STEP = 2.0**40
"""Step at which 1 − β^t is 1 in float32 for every β, and t + 1 is t."""


class AdamW(torch.optim.AdamW):
    """AdamW, with or without Adam's bias correction.

    Args:
        bias_correction: whether moments are divided by 1 − β^t (Kingma and Ba 2015, section 3). BERT's own optimizer
            leaves that out (`optimization.py` of google-research/bert), so that its first steps are larger: with β of
            0.9 and 0.999 by 3.2 in the first one, and by 6.6 at most.
    """

    def __init__(
        self,
        groups: Iterable[Mapping[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        bias_correction: bool = True,
    ) -> None:
        super().__init__([dict(group) for group in groups], lr=lr, betas=betas, eps=eps, fused=True)
        self._bias_correction = bias_correction

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        if not self._bias_correction:
            self._begin_uncorrected()
        return super().step(closure)  # type: ignore[no-any-return]

    def _begin_uncorrected(self) -> None:
        """Give parameters without state the moments of a first step, and a step number that corrects nothing."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self.state[parameter] = {
                        "step": torch.full((), _UNCORRECTED_STEP, device=parameter.device),
                        "exp_avg": torch.zeros_like(parameter),
                        "exp_avg_sq": torch.zeros_like(parameter),
                    }
