"""Lines and views of a pretraining run for a person: step, losses, tokens per second, time left."""

import time
from collections.abc import Sequence
from dataclasses import replace

from bert_core.objectives import OBJECTIVES
from bert_core.objectives.base import PERPLEXITY
from orchestrator.base.console import Pace, duration
from orchestrator.base.console.run_views import TrainingView
from orchestrator.base.results import MetricEvent

SETTLING_S = 1.0
NUM_MILESTONES = 10
"""Lines of a training that are logged in any case; between them one a minute is."""
_LINE_INTERVAL_S = 60.0
_TOLD_DATA_WAIT = 0.02
"""Share of the training time above which waiting for data is on the lines."""


class TrainingStatus:
    """Lines for the measurements of a run, with the time left.

    `phases` are (tokens of a sequence, steps, sequences of a step): a step's time goes with its tokens.
    """

    def __init__(self, phases: Sequence[tuple[int, int, int]]) -> None:
        self._phases = phases
        self._num_steps = sum(steps for _, steps, _ in phases)
        self._first: tuple[int, float] | None = None
        self._passed = -1
        self._pace = Pace(_LINE_INTERVAL_S)
        self.view = TrainingView(0, self._num_steps)
        """View for a terminal, after the newest measurement of which there was a line."""

    def line(self, event: MetricEvent) -> str:
        """Line for a measurement: losses, and, in validation, accuracies in brackets."""
        values = event.values
        shown = [o for o in OBJECTIVES.values() if o.has_accuracy and o.loss_name in values]
        losses = [f"{objective.metric_prefix} {values[objective.loss_name]:.3f}" for objective in shown]
        if event.split == "validation":
            accuracies = [values[objective.accuracy_name] for objective in shown]
            parts = [f"{loss} ({accuracy:.0%})" for loss, accuracy in zip(losses, accuracies, strict=True)]
            if (perplexity := values.get(PERPLEXITY)) is not None:
                parts.append(f"perplexity {perplexity:,.{int(perplexity < 100)}f}")
            line = f"step {event.step:,} held out: {'  '.join(parts)}".replace("%", " %").replace("%", "% right", 1)
            self.view = replace(self.view, held_out=line)
            return line
        measured = [*losses, f"{values['tokens_per_s']:,.0f} tokens/s"]
        if (share := values.get("data_wait_share", 0.0)) > _TOLD_DATA_WAIT:
            measured.append(f"{share:.0%} waiting for data".replace("%", " %"))
        left_s = self._left_s(event, time.monotonic())
        self.view = TrainingView(event.step, self._num_steps, measured, left_s, self.view.held_out)
        left = [] if left_s is None else [f"{duration(left_s)} left"]
        return "  ".join([f"step {event.step:,}/{self._num_steps:,}", *measured, *left])

    def _left_s(self, event: MetricEvent, now: float) -> float | None:
        """Estimated seconds to the end; None while nothing is known."""
        if self._first is None or now - self._first[1] < SETTLING_S:
            self._first = (event.step, now)  # a resumed run first tells old measurements, all at once
        done = self._work(event.step) - self._work(self._first[0])
        left = self._work(self._num_steps) - self._work(event.step)
        return (now - self._first[1]) / done * left if done > 0 else None

    def is_for_the_log(self, event: MetricEvent) -> bool:
        """Whether a line is logged: held-out scores, milestones, and one a minute between them."""
        is_milestone = event.split == "train" and self.is_milestone(event)
        return self._pace.is_due() or is_milestone or event.split != "train"

    def is_milestone(self, event: MetricEvent) -> bool:
        """Whether an event is the first one of a run, or the first one in a tenth of its steps."""
        reached = event.step * NUM_MILESTONES // self._num_steps
        is_first, self._passed = reached > self._passed, max(reached, self._passed)
        return is_first

    def _work(self, num_steps: int) -> int:
        """Cost of so many steps, in tokens."""
        work = 0
        for length, steps, size in self._phases:
            work += length * size * min(steps, num_steps)
            num_steps -= min(steps, num_steps)
        return work
