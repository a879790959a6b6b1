"""What a person sees while work goes on: lines that stay, and on a terminal one line that is written over.

Elsewhere (a file, a pipe, a job's log) the changing line becomes a plain one every few seconds.
"""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from orchestrator.results import MetricEvent

PLAIN_INTERVAL_S = 10.0
SETTLING_S = 1.0


class Progress:
    """Writes to stderr; every line that stays also goes to `keep`, the run's log."""

    def __init__(self, stream: TextIO | None = None, keep: Callable[[str], None] = lambda line: None) -> None:
        self._stream = stream or sys.stderr
        self._keep = keep
        self._is_terminal = self._stream.isatty()
        self._has_status = False
        self._plain_at = 0.0

    def say(self, line: str) -> None:
        """A line that stays."""
        self._keep(line)
        self._erase()
        self._stream.write(line + "\n")
        self._stream.flush()

    def show(self, line: str) -> None:
        """How things stand: takes the place of the last such line."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns
            self._stream.write("\r" + line[: width - 1].ljust(width - 1))
            self._stream.flush()
            self._has_status = True
        elif time.monotonic() - self._plain_at > PLAIN_INTERVAL_S:
            self._plain_at = time.monotonic()
            self.say(line)

    def close(self) -> None:
        """Leave a clean line behind."""
        self._erase()

    def _erase(self) -> None:
        if self._has_status:
            self._stream.write("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r")
            self._has_status = False


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


def duration(seconds: float) -> str:
    """A length of time as people say it.

    >>> duration(59.4), duration(61), duration(3 * 3600 + 60)
    ('59 s', '1:01 min', '3:01 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
