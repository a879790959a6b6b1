"""Views of a run: what a terminal shows of it while it works, as frozen values that make lines of themselves.

worker's event ─► the driver's callback ─► a view ─► Progress.show ─► lines, several times a second

A line that is too long is cut by the terminal; of a table that is too wide, columns are left out and named.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.base.console.log_lines import counted, duration

_ELAPSED_FROM_S = 1.0
_BAR_WIDTH = 24
_LINES_BESIDE_TRIALS = 6
"""Lines of the terminal that a sweep's rows leave free."""


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

    @property
    def title(self) -> str:
        return "training"

    def lines(self, width: int, height: int) -> Iterator[str]:
        """Bar and time left, losses, newest scores on held-out text."""
        share = min(1.0, self.step / max(1, self.num_steps))
        bar = "━" * round(share * _BAR_WIDTH)
        left = "" if self.left_s is None else f"  {duration(self.left_s)} left"
        yield f"{bar:─<{_BAR_WIDTH}} step {self.step:,}/{self.num_steps:,}  {share:.0%}{left}"
        yield from filter(None, ("  ".join(self.measured), self.held_out))


@dataclass(frozen=True)
class TrialView:
    number: int
    varied: Mapping[str, str]
    """Values that set it apart from the other trials, as text, by field: `learning_rate`, `seed`."""
    num_epochs: float
    epoch: float = 0.0
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
    num_trials: int
    best: str = ""
    """The best completed trial in words; empty before the first."""
    left_s: float | None = None
    """Estimated seconds to the end."""

    @property
    def num_waiting(self) -> int:
        return max(0, self.num_trials - self.num_ended - len(self.running))

    @property
    def title(self) -> str:
        ended = f"{self.num_ended} of {counted(self.num_trials, 'trial')} ended"
        return f"{ended}, {len(self.running)} running, {self.num_waiting} waiting"

    def lines(self, width: int, height: int) -> Iterator[str]:
        """Table of the running trials, best completed trial, time left, names of columns without room."""
        from orchestrator.base.console.tables import Column, fitting, plain_lines

        trials = self.running[: max(1, height - _LINES_BESIDE_TRIALS)]
        varied = [
            Column(name, (name, *(trial.varied.get(name, "") for trial in trials)))
            for name in dict.fromkeys(name for trial in trials for name in trial.varied)
        ]
        columns = [
            Column("trial", ("trial", *(str(trial.number) for trial in trials)), is_number=True),
            *varied,
            Column("epoch", ("epoch", *(f"{one.epoch:.1f}/{one.num_epochs:g}" for one in trials)), is_number=True),
            Column(self.metric, (self.metric, *(_score(trial.last) for trial in trials)), is_number=True),
            Column("best", ("best", *(_score(trial.best) for trial in trials)), is_number=True),
        ]
        alike = [column.name for column in varied if len(set(column.texts[1:])) == 1]
        apart = [column.name for column in varied if column.name not in alike]
        shown = fitting(columns, width, [*alike[::-1], *apart[::-1], "epoch", "best", "trial"], may_fold=False)
        if trials and shown:
            yield from plain_lines(shown)
        if len(self.running) > len(trials):
            yield f"and {len(self.running) - len(trials)} more trials that run"
        last = [self.best] if self.best else []
        last += [f"about {duration(self.left_s)} left"] if self.left_s and round(self.left_s) else []
        left_out = [column.name for column in columns if column not in shown]
        last += [f"left out: {', '.join(left_out)}"] if left_out else []
        if last:
            yield "  ".join(last)


def _score(score: float | None) -> str:
    return "–" if score is None else f"{score:.4f}"


RunView = TrainingView | SweepView


@dataclass(frozen=True)
class Shown:
    """All that a terminal shows at present."""

    status: str = ""
    since: float = field(default_factory=time.monotonic)
    """Monotonic time at which the status, or without one the view, began."""
    stage: str = ""
    """Stage of a pipeline that is at work, in words: `stage 2 of 3: pretrain`."""
    view: RunView | None = None

    def lines(self, width: int, height: int) -> Iterator[str]:
        """First the stage, what is being done, and for how long; then the view."""
        parts = [self.stage, self.status or (self.view.title if self.view else "")]
        elapsed_s = time.monotonic() - self.since
        parts += [duration(elapsed_s)] if elapsed_s >= _ELAPSED_FROM_S else []
        yield "  ".join(filter(None, parts))
        if self.view is not None:
            yield from self.view.lines(width, height)
