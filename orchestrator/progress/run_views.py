"""Views of a run: what a terminal shows of it while it works. Frozen values; `drawing` makes lines of them.

worker's event ─► the driver's callback ─► a view ─► Progress.show ─► drawing
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StageView:
    """Stage of a pipeline that is at work."""

    number: int
    """Place in the pipeline, from 1 on."""
    num_stages: int
    name: str


@dataclass(frozen=True)
class TrainingView:
    """One training, after its newest measurement."""

    step: int
    num_steps: int
    measured: Sequence[str] = ()
    """Newest losses and speed, as text: `mlm 6.430`, `1,500 tokens/s`."""
    left_s: float | None = None
    """Estimated seconds to the end."""
    held_out: str = ""
    """Line of the newest scores on held-out text; empty before the first."""


@dataclass(frozen=True)
class TrialView:
    """A trial that runs."""

    number: int
    varied: Mapping[str, str]
    """Values that set it apart from the other trials, as text, by field: `learning_rate`, `seed`."""
    epoch: float = 0.0
    num_epochs: float | None = None
    last: float | None = None
    """Score of its newest evaluation."""
    best: float | None = None
    """Its best score."""


@dataclass(frozen=True)
class SweepView:
    """A sweep's trials now."""

    metric: str
    """The score that ranks."""
    running: Sequence[TrialView]
    num_ended: int
    num_trials: int | None
    """Number of all its trials; None where that is not known."""
    best: str = ""
    """The best completed trial in words; empty before the first."""
    left_s: float | None = None
    """Estimated seconds to the end."""

    @property
    def num_waiting(self) -> int | None:
        """Number of trials that have not begun; None where that is not known."""
        return None if self.num_trials is None else max(0, self.num_trials - self.num_ended - len(self.running))


RunView = TrainingView | SweepView


@dataclass(frozen=True)
class Shown:
    """All that a terminal shows at present."""

    status: str = ""
    since: float = field(default_factory=time.monotonic)
    """Monotonic time at which the status, or without one the view, began."""
    stage: StageView | None = None
    view: RunView | None = None
