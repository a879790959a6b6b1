"""The learning rate over a run: a warm-up, the peak for as long as the decay leaves it, and a decay. No torch."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

Curve = Callable[[float], float]
"""Factor on the peak learning rate from a share, 0 to 1, of steps."""


@dataclass(frozen=True)
class Schedule:
    decay: Curve
    """Factor from the share of the decay that is left."""
    warmup: Curve = lambda done: done
    """Factor from the share of the warm-up that is done."""
    has_peak: bool = True
    """Whether the peak can last: the decay may be shorter than what the warm-up leaves."""


def _cosine(left: float) -> float:
    return 0.5 * (1.0 - math.cos(math.pi * left))


def _between(low: float, curve: Curve) -> Curve:
    return lambda share: low + (1.0 - low) * curve(share)


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        "linear": Schedule(lambda left: left),
        "cosine": Schedule(_cosine),
        "1-sqrt": Schedule(lambda left: 1.0 - math.sqrt(1.0 - left)),
        "constant": Schedule(lambda left: 1.0, has_peak=False),
        "one_cycle": Schedule(_between(1 / 25e4, _cosine), warmup=_between(1 / 25, _cosine), has_peak=False),
    }
)
"""A line down to 0; half a cosine (Loshchilov and Hutter 2017, without restarts); 1 − √ of what is done of the decay
(Hägele et al. 2024, section 3); no decay; and PyTorch's OneCycleLR (Smith and Topin 2018) without its momentum."""


def learning_rate_factor(
    step: int,
    total_steps: int,
    warmup_steps: int,
    schedule: str = "linear",
    decay_steps: int | None = None,
    first_step: int = 0,
) -> float:
    """Factor on the peak learning rate in a step, counted from 0 (Devlin et al. 2018, appendix A.2).

    It rises to 1 over the warm-up, is 1 until the decay begins, and has come to the decay's end in the step after the
    last. With a linear warm-up, a long peak and a short decay this is warmup-stable-decay (Hu et al. 2024).

    Args:
        decay_steps: length of the decay; all steps after the warm-up that are not done, and never more, when None.
        first_step: steps that another run has done, at whose end the learning rate was at its peak.

    >>> [learning_rate_factor(step, total_steps=6, warmup_steps=2) for step in range(7)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    >>> [learning_rate_factor(step, 6, 2, decay_steps=2) for step in range(7)]
    [0.0, 0.5, 1.0, 1.0, 1.0, 0.5, 0.0]
    """
    chosen, longest = SCHEDULES[schedule], total_steps - max(warmup_steps, first_step)
    if step < warmup_steps:
        return chosen.warmup(step / warmup_steps)
    length = longest if decay_steps is None else min(decay_steps, longest)
    return chosen.decay(min(1.0, max(0.0, (total_steps - step) / max(1, length))))
