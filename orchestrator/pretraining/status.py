"""The status line of a pretraining run: step, losses, tokens per second, time left."""

import time
from collections.abc import Sequence

from orchestrator.progress import duration
from orchestrator.results import MetricEvent

SETTLING_S = 1.0


class TrainingStatus:
    """The line of a pretraining run: step, losses, tokens/s, time left.

    `phases` are (tokens of a sequence, steps): a step's time goes with its sequences' length.
    """

    def __init__(self, phases: Sequence[tuple[int, int]]) -> None:
        self._phases = phases
        self._num_steps = sum(steps for _, steps in phases)
        self._first: tuple[int, float] | None = None

    def line(self, event: MetricEvent) -> str:
        """The line for a measurement in training, or on held-out documents: losses and, in brackets, accuracies."""
        values = event.values
        heads = [head for head in ("mlm", "nsp", "sop") if f"{head}_loss" in values]
        if event.split == "validation":
            parts = [f"{head} {values[f'{head}_loss']:.3f} ({values[f'{head}_accuracy']:.1%})" for head in heads]
            parts.append(f"perplexity {values['perplexity']:,.1f}")
            return f"held out {event.step:,}: {'  '.join(parts)}".replace("%", " %")
        parts = [f"step {event.step:,}/{self._num_steps:,}"]
        parts += [f"{head} {values[f'{head}_loss']:.3f}" for head in heads]
        parts.append(f"{values['tokens_per_s']:,.0f} tokens/s")
        now = time.monotonic()
        if self._first is None or now - self._first[1] < SETTLING_S:
            self._first = (event.step, now)  # a resumed run first tells old measurements, all at once
        done = self._work(event.step) - self._work(self._first[0])
        if done > 0:
            left = self._work(self._num_steps) - self._work(event.step)
            parts.append(f"{duration((now - self._first[1]) / done * left)} left")
        return "  ".join(parts)

    def _work(self, num_steps: int) -> int:
        """What so many steps cost, in tokens of one sequence in each."""
        work = 0
        for length, steps in self._phases:
            work += length * min(steps, num_steps)
            num_steps -= min(steps, num_steps)
        return work
