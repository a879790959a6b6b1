"""Time that work takes on this machine, estimated from its number of CPU cores and the work's arithmetic.

Nothing is measured: a measured step needs the network and seconds of start. The rate is a careful one, and
`orchestrator plan` tells more once the spec is there. A GPU does not count in: small models are bound there by launches
of kernels, which the predictions of `docs/performance.md` leave out.
"""

from dataclasses import dataclass

FLOPS_PER_CORE = 20e9
"""Floating-point operations a second of a training on one core. A BERT-tiny reached 30 to 40e9 on a core of 2025 that
had nothing else to do, and 18e9 on one that was shared."""
START_S = 60.0
"""Seconds before the first step: Ray starts, text is read and tokenized."""
TRIAL_START_S = 10.0
"""Seconds that a trial takes beside its steps: a process starts, weights are loaded and saved."""
STEP_S = 0.03
"""Seconds that a step takes beside its arithmetic."""


@dataclass(frozen=True)
class TimeBudget:
    """Time that a run may take, and the cores that it has."""

    minutes: float
    num_cores: int

    @property
    def seconds(self) -> float:
        """Seconds for the work itself, after the start; at least half of all."""
        return max(30 * self.minutes, 60 * self.minutes - START_S)

    @property
    def text(self) -> str:
        """Note for a person on the way that times were estimated."""
        cores = "1 CPU core" if self.num_cores == 1 else f"{self.num_cores} CPU cores"
        return f"estimated for {cores}, not measured"


def step_seconds(flops: float, num_steps: float) -> float:
    """Seconds that steps with so many operations in all take on one core."""
    return flops / FLOPS_PER_CORE + num_steps * STEP_S
