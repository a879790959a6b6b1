"""The trials of a sweep that run now, as a person is shown them: each one's values, epoch, newest and best score."""

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from orchestrator.cells import short_value
from orchestrator.finetuning.search_space import TrialPlan, listed_values
from orchestrator.progress import Pace
from orchestrator.progress.run_views import SweepView, TrialView
from orchestrator.results import MetricEvent
from orchestrator.specs import SweepSpec

_LOG_INTERVAL_S = 60.0
"""Time between two log lines about evaluations, of whatever trials."""
_LINE_INTERVAL_S = 2.0
"""Time between two lines about evaluations for who sees no view, of whatever trials."""


class RunningTrials:
    """Keeps a view of each trial that runs.

    Args:
        metric: the score that ranks trials.
        fixed: names of values that no two trials differ in; they are left out.
    """

    def __init__(self, metric: str, fixed: Collection[str] = ()) -> None:
        self._metric, self._fixed = metric, fixed
        self._views: dict[str, TrialView] = {}
        self._untold: dict[str, TrialView] = {}
        """Trials with an evaluation that no line has told yet: the one that has waited longest comes first."""
        self._log_pace, self._pace = Pace(_LOG_INTERVAL_S), Pace(_LINE_INTERVAL_S)

    @property
    def keys(self) -> Collection[str]:
        """Keys of the trials that run."""
        return self._views.keys()

    def started(self, plan: TrialPlan) -> None:
        """Take in a trial that begins, or begins again."""
        varied = varied_texts({**plan.point, **plan.replicate}, self._fixed)
        self._views[plan.key] = TrialView(plan.number, varied, num_epochs=plan.recipe.epochs)
        self._untold.pop(plan.key, None)

    def measured(self, plan: TrialPlan, events: Sequence[MetricEvent]) -> str | None:
        """Take in an evaluation; returns a line on it where one is due in the run's log."""
        view = self._views.get(plan.key)
        scored = [event for event in events if self._metric in event.values]
        if view is None or not scored:
            return None
        scores = [event.values[self._metric] for event in scored]
        best = max(scores if view.best is None else [view.best, *scores])
        epoch = view.epoch if scored[-1].epoch is None else scored[-1].epoch
        self._views[plan.key] = view = replace(view, epoch=epoch, last=scores[-1], best=best)
        self._untold[plan.key] = view
        if not self._log_pace.is_due():
            return None
        self.told(plan)
        return self._line(view)

    def next_line(self) -> str | None:
        """A line on an evaluation for who sees no view, where one is due.

        Each evaluation has its line; where evaluations come faster than the interval, only a trial's newest one has.
        """
        if not self._untold or not self._pace.is_due():
            return None
        return self._line(self._untold.pop(next(iter(self._untold))))

    def told(self, plan: TrialPlan) -> None:
        """Take in that a line has told all that is known of a trial."""
        self._untold.pop(plan.key, None)

    def left(self, plan: TrialPlan) -> None:
        """Take in that a trial runs no more: it has ended."""
        self._views.pop(plan.key, None)

    def view(self, num_ended: int, num_trials: int, best: str, left_s: float | None) -> SweepView:
        """The view of the whole sweep."""
        return SweepView(self._metric, tuple(self._views.values()), num_ended, num_trials, best, left_s)

    def _line(self, view: TrialView) -> str:
        score = f"{self._metric} {view.last:.4f}, best {view.best:.4f}"
        values = f" ({values_text(view.varied)})" if view.varied else ""
        return f"trial {view.number}{values}: epoch {view.epoch:.1f}/{view.num_epochs:g}, {score}"


def fixed_names(spec: SweepSpec) -> frozenset[str]:
    """Names of a sweep's axes that have one value, and `seed` where there is one."""
    axes = {name for name in spec.axes if len(listed_values(spec, name)) == 1}
    return frozenset(axes | ({"seed"} if len(spec.seeds) == 1 else set()))


def varied_texts(values: Mapping[str, object], fixed: Collection[str]) -> dict[str, str]:
    """Values of a trial as text, without those in which no two trials differ."""
    return {name: short_value(value) for name, value in values.items() if name not in fixed}


def best_text(metric: str, score: float, number: int) -> str:
    """The best completed trial in words."""
    return f"best {metric} {score:.4f} (trial {number})"


def values_text(values: Mapping[str, str]) -> str:
    """Names and values in words: `learning_rate 3e-05, seed 1`."""
    return ", ".join(f"{name} {value}" for name, value in values.items())


class TrainingTime(NamedTuple):
    """Seconds that a trial trains, by its speed. Evaluations are not counted."""

    left_s: float
    """Seconds of the steps that are to come."""
    whole_s: float


def training_time(measured: MetricEvent, num_epochs: float, batch_size: int) -> TrainingTime | None:
    """Time of a trial's training by its speed at a measurement; None where that has no speed.

    >>> training_time(MetricEvent(50, "train", {"examples_per_s": 16.0}, epoch=0.5), 3.0, 32)
    TrainingTime(left_s=500.0, whole_s=600.0)
    """
    examples_per_s = measured.values.get("examples_per_s", 0.0)
    if not measured.epoch or not examples_per_s > 0:
        return None
    done_s = measured.step * batch_size / examples_per_s
    whole_s = done_s * num_epochs / measured.epoch
    return TrainingTime(max(0.0, whole_s - done_s), whole_s)


def seconds_left(typical_s: float, running_left_s: Sequence[float], num_waiting: int, at_a_time: int) -> float:
    """Seconds until the last trial ends, if a waiting one begins at once and takes as long as a typical one.

    Args:
        typical_s: seconds of a trial.
        running_left_s: seconds that are left of each trial that runs.
        num_waiting: trials that have not begun.
        at_a_time: trials that run at a time where enough are left.

    >>> seconds_left(60.0, [60.0], 3, at_a_time=1), seconds_left(60.0, [30.0, 60.0], 2, at_a_time=2)
    (240.0, 120.0)
    >>> seconds_left(60.0, [0.0], 0, at_a_time=4)
    0.0
    """
    ends = [*running_left_s, *[0.0] * (min(at_a_time, len(running_left_s) + num_waiting) - len(running_left_s))]
    heapq.heapify(ends)
    for _ in range(num_waiting):
        heapq.heapreplace(ends, ends[0] + typical_s)
    return max(ends, default=0.0)
