"""Progress of a sweep: events in, each result recorded once, the best trial kept, lines and a view for a person."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.base.console import Pace, duration
from orchestrator.base.console.run_views import SweepView, TrialView
from orchestrator.base.formatting import short_value
from orchestrator.base.results import MessageEvent, MetricEvent, TrialResult, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.finetuning.search_space import TrialPlan, TrialQueue, listed_values
from orchestrator.finetuning.trial import baseline_metrics
from orchestrator.finetuning.trial_journal import rank
from orchestrator.specs import SweepSpec

logger = logging.getLogger(__name__)
_LOG_INTERVAL_S = 60.0
"""Time between two log lines about evaluations, of whatever trials."""


@dataclass(frozen=True)
class SweepListener:
    """Callbacks that the driver calls; each may be called twice for a key."""

    on_trial_started: Callable[[TrialStart], object]
    on_trial_events: Callable[[str, Sequence[MetricEvent]], None]
    on_trial_result: Callable[[TrialResult], None]
    on_view: Callable[[SweepView], None] = lambda view: None
    """Called with what a terminal shows of the sweep, whenever that changes."""


@dataclass
class _Running:
    """A trial since it last began to run."""

    view: TrialView
    started_at: float
    host: str | None = None
    best_event: MetricEvent | None = None


@dataclass
class SweepProgress:
    """Collects results by trial key and passes everything on to the listener."""

    queue: TrialQueue
    metric: str
    baseline: Mapping[str, float]
    """The majority's validation scores."""
    listener: SweepListener
    on_leading: Callable[[TrialResult], None]
    """Called with each completed trial that is the best so far."""
    on_superseded: Callable[[TrialResult], None]
    """Called with each completed trial that is not, or no longer, the best: its weights may go."""
    on_ended: Callable[[TrialResult], None]
    """Called with each trial that need not run again: its checkpoints may go."""
    results: dict[str, TrialResult]
    """Results by trial key, first those of an earlier attempt in the order in which they ended."""
    best: TrialResult | None = None

    def __post_init__(self) -> None:
        self._num_earlier = len(self.results)
        self._running: dict[str, _Running] = {}
        self._log_pace = Pace(_LOG_INTERVAL_S)
        self._fixed = fixed_names(self.queue.spec)
        self._begun_at = time.monotonic()
        loser = None
        for result in self.results.values():
            if result.state == RunState.COMPLETED:
                loser = self._compare(result)
        if self.best is not None:
            self.on_leading(self.best)
        if loser is not None:
            self.on_superseded(loser)  # the earlier attempt may have ended before it did; earlier losers are gone

    def started(self, plan: TrialPlan) -> None:
        """Record the start or restart of a trial."""
        own = {} if plan.starts is None else {"init_from": plan.recipe.init_from}
        values = {**plan.point, **own, **plan.replicate}
        varied = {name: short_value(value) for name, value in values.items() if name not in self._fixed}
        view = TrialView(plan.number, varied, num_epochs=plan.recipe.epochs)
        known = self._running.get(plan.key)
        self._running[plan.key] = _Running(view, time.monotonic(), known.host if known else None)
        self.listener.on_trial_started(TrialStart(plan.key, plan.number, plan.parameters, plan.seed))
        self._show()

    def reported(self, plan: TrialPlan, told: Sequence[MetricEvent | MessageEvent], host: str | None = None) -> None:
        """Pass on what a trial measured and its warnings, and note its best score."""
        trial = self._running[plan.key]
        trial.host = host
        events = [event for event in told if isinstance(event, MetricEvent)]
        for event in told:
            if isinstance(event, MessageEvent):
                logger.warning(f"trial {plan.number}: {event.text}")
            elif (score := event.values.get(self.metric)) is not None:
                if trial.best_event is None or score > trial.best_event.values[self.metric]:
                    trial.best_event = event
                best = trial.best_event.values[self.metric]
                trial.view = replace(trial.view, epoch=event.epoch or 0.0, last=score, best=best)
        self.listener.on_trial_events(plan.key, events)
        if trial.view.last is not None and self._log_pace.is_due():
            logger.info(self._evaluation_line(trial.view))
        self._show()

    def ended(self, plan: TrialPlan, result: TrialResult) -> None:
        """Record the result of a trial that has ended, in whatever way."""
        self._running.pop(plan.key, None)
        self.results[plan.key] = result
        self.queue.record(plan, result)
        self.listener.on_trial_result(result)
        if result.state == RunState.COMPLETED:  # once it is recorded: a better one leads before weights are deleted
            loser = self._compare(result)
            if self.best is result:
                self.on_leading(result)
            if loser is not None:
                self.on_superseded(loser)
        if result.state != RunState.FAILED:
            self.on_ended(result)
        logger.info(self._end_line(result))
        self._show()

    def pruned(self, plan: TrialPlan) -> TrialResult:
        """The result of a trial that the scheduler ended early: its best scores so far."""
        trial = self._running.get(plan.key)
        event = trial and trial.best_event
        return plan.result(
            RunState.PRUNED,
            best_step=event.step if event else 0,
            metrics={**event.values, **baseline_metrics(self.baseline)} if event else {},
            seconds=self._seconds_of(trial),
            host=trial and trial.host,
        )

    def died(self, plan: TrialPlan, reason: str) -> TrialResult:
        """The result of a trial whose process died more often than the spec allows."""
        trial = self._running.get(plan.key)
        return plan.result(RunState.FAILED, error=reason, seconds=self._seconds_of(trial), host=trial and trial.host)

    def _seconds_of(self, trial: _Running | None) -> float:
        """Seconds since a trial last began to run; since the sweep did, for one that never has."""
        return time.monotonic() - (trial.started_at if trial else self._begun_at)

    def _compare(self, result: TrialResult) -> TrialResult | None:
        """Keep the better one of the best and another completed trial; returns the other one of the two."""
        best, self.best = self.best, result
        if best is not None and self._rank(result) <= self._rank(best):
            best, self.best = result, best
        return best

    def _rank(self, result: TrialResult) -> tuple[float, int]:
        return rank(result.metrics[self.metric], result.number)

    def standing(self) -> str:
        """Return how many trials need not run again when an interrupted sweep goes on, and what the others do."""
        num_ended = sum(result.state != RunState.FAILED for result in self.results.values())
        return (
            f"{num_ended} of {self.queue.num_trials} trials are finished and kept; resuming runs the others, from "
            "their last checkpoint where there is one (execution.checkpoint_every_minutes), else from their beginning"
        )

    def _show(self) -> None:
        best = ""
        if self.best is not None:
            best = f"best {self.metric} {self.best.metrics[self.metric]:.4f} (trial {self.best.number})"
        running = tuple(trial.view for trial in self._running.values())
        num_ended, num_trials = len(self.results), self.queue.num_trials
        self.listener.on_view(SweepView(self.metric, running, num_ended, num_trials, best, self._left_s()))

    def _evaluation_line(self, view: TrialView) -> str:
        values = f" ({values_text(view.varied)})" if view.varied else ""
        score = f"{self.metric} {view.last:.4f}, best {view.best:.4f}"
        return f"trial {view.number}{values}: epoch {view.epoch:.1f}/{view.num_epochs:g}, {score}"

    def _end_line(self, last: TrialResult) -> str:
        """Line for a person: how many are done, how the last one ended, the best so far, the time left."""
        if last.state == RunState.FAILED:
            end = f"trial {last.number} failed: {last.error}"
        else:
            score = f"{self.metric} {last.metrics[self.metric]:.4f}" if self.metric in last.metrics else "no score"
            end = f"trial {last.number} {'pruned at' if last.state == RunState.PRUNED else 'reached'} {score}"
        parts = [f"{len(self.results)} of {self.queue.num_trials} trials ended: {end}"]
        if self.best is not None:
            parts.append(f"best {self.best.metrics[self.metric]:.4f} (trial {self.best.number})")
        left_s = self._left_s()
        parts += [f"about {duration(left_s)} left"] if left_s and round(left_s) else []
        return " · ".join(parts)

    def _left_s(self) -> float | None:
        """Estimated seconds until the last trial has ended, if what is left goes on as what this attempt has done.

        None before the first evaluation. Low at first where a trial goes on from a checkpoint, whose epochs count.
        """
        of_running = sum(trial.view.epoch / trial.view.num_epochs for trial in self._running.values())
        num_done = len(self.results) - self._num_earlier + of_running  # a running trial by its share of epochs
        if not num_done:
            return None
        num_left = max(0.0, self.queue.num_trials - len(self.results) - of_running)
        return (time.monotonic() - self._begun_at) * num_left / num_done


def fixed_names(spec: SweepSpec) -> Collection[str]:
    """Names of values that no two trials differ in: axes that have one value, and `seed` where there is one."""
    axes = {name for name in spec.axes if len(listed_values(spec, name)) == 1}
    return axes | ({"seed"} if len(spec.seeds) == 1 else set())


def values_text(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def first_reason(results: Mapping[str, TrialResult]) -> str:
    """Reason of the first trial that did not complete."""
    first = min(results.values(), key=lambda result: (result.state != RunState.FAILED, result.number))
    return first.error or ("no reason given" if first.state == RunState.FAILED else "pruned; try scheduler: none")
