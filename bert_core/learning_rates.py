"""The learning rate over a run: a linear warm-up, and what follows it. No torch."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

SCHEDULES: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {
        "linear": lambda left: left,
        "cosine": lambda left: 0.5 * (1.0 - math.cos(math.pi * left)),
        "constant": lambda left: 1.0,
    }
)
"""Factor on the peak learning rate after the warm-up, from the share of the steps that is left: a line down to 0, half
a cosine (Loshchilov and Hutter 2017, without restarts), or the peak."""


def learning_rate_factor(step: int, total_steps: int, warmup_steps: int, schedule: str = "linear") -> float:
    """Factor on the peak learning rate in a step, counted from 0 (Devlin et al. 2018, appendix A.2).

    It rises from 0 to 1 over the warm-up, and all of the schedule's share is left then; none is left in the step after
    the last.

    >>> [learning_rate_factor(step, total_steps=6, warmup_steps=2) for step in range(7)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < warmup_steps:
        return step / warmup_steps
    return SCHEDULES[schedule](max(0.0, (total_steps - step) / max(1, total_steps - warmup_steps)))
