"""Progress of a sweep: events in, each result recorded once, best trial kept."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from orchestrator.finetuning.leader import rank
from orchestrator.finetuning.running_trials import RunningTrials, TrainingTime, best_text, seconds_left, training_time
from orchestrator.finetuning.search_space import TrialPlan
from orchestrator.finetuning.sweep_listener import SweepListener
from orchestrator.finetuning.trial import baseline_metrics
from orchestrator.finetuning.trial_queue import TrialQueue
from orchestrator.progress import duration
from orchestrator.results import MessageEvent, MetricEvent, TrialResult, TrialStart
from orchestrator.run_states import RunState


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
    fixed: Collection[str] = ()
    """Names of values that no two trials differ in: a person is not shown them of each."""
    best: TrialResult | None = None
    _best_event: dict[str, MetricEvent] = field(default_factory=dict)
    _hosts: dict[str, str] = field(default_factory=dict)
    """Hosts of trials that have reported, by key."""
    _started_at: dict[str, float] = field(default_factory=dict)
    _training: dict[str, TrainingTime] = field(default_factory=dict)
    """Times of the trainings of trials that have been evaluated, by their speed."""
    _running: RunningTrials = field(init=False)
    _earlier: frozenset[str] = frozenset()
    """Keys of the trials that an earlier attempt has ended."""
    _at_a_time: int = 0
    """Most trials that have run at a time in this attempt."""
    _begun_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._earlier = frozenset(self.results)
        self._running = RunningTrials(self.metric, self.fixed)
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
        self._started_at[plan.key] = time.monotonic()
        self._best_event.pop(plan.key, None)
        self._training.pop(plan.key, None)
        self.listener.on_trial_started(TrialStart(plan.key, plan.number, plan.parameters, plan.seed))
        self._running.started(plan)
        self._at_a_time = max(self._at_a_time, len(self._running.keys))
        self._show()

    def ran_on(self, plan: TrialPlan, host: str) -> None:
        """Note the host of a trial that has reported; one that is ended early does not say it itself."""
        self._hosts[plan.key] = host

    def reported(self, plan: TrialPlan, told: Sequence[MetricEvent | MessageEvent]) -> None:
        """Pass on what a trial measured and its warnings, and note its best score."""
        for message in told:
            if isinstance(message, MessageEvent):
                self.listener.on_warning(f"trial {plan.number}: {message.text}")
        events = [event for event in told if isinstance(event, MetricEvent)]
        for event in events:
            training = training_time(event, plan.recipe.epochs, plan.recipe.batch_size)
            if training is not None:
                self._training[plan.key] = training
            score, known = event.values.get(self.metric), self._best_event.get(plan.key)
            if score is not None and (known is None or score > known.values[self.metric]):
                self._best_event[plan.key] = event
        self.listener.on_trial_events(plan.key, events)
        line = self._running.measured(plan, events)
        if line is not None:
            self.listener.on_progress(line)
        self.look()
        self._show()

    def look(self) -> None:
        """Tell an evaluation that had to wait for its line, if one is due now."""
        line = self._running.next_line()
        if line is not None:
            self.listener.on_evaluation(line)

    def ended(self, plan: TrialPlan, result: TrialResult) -> None:
        """Record the result of a trial that has ended, in whatever way."""
        self._running.left(plan)
        self.results[plan.key] = result
        self.queue.record(plan, result)
        self.listener.on_trial_result(result)
        if result.state == RunState.COMPLETED:
            self._keep_best(result)  # once it is recorded: this deletes weights
        if result.state != RunState.FAILED:
            self.on_ended(result)
        self._running.told(plan)
        self.listener.on_progress(self.line(result))
        self._show()

    def pruned(self, plan: TrialPlan) -> TrialResult:
        """The result of a trial that the scheduler ended early: its best scores so far."""
        event = self._best_event.get(plan.key)
        return plan.result(
            RunState.PRUNED,
            best_step=event.step if event else 0,
            metrics={**event.values, **baseline_metrics(self.baseline)} if event else {},
            seconds=self._seconds_now(plan.key),
            host=self._hosts.get(plan.key),
        )

    def died(self, plan: TrialPlan, reason: str) -> TrialResult:
        """The result of a trial whose process died more often than the spec allows."""
        return plan.result(
            RunState.FAILED, error=reason, seconds=self._seconds_now(plan.key), host=self._hosts.get(plan.key)
        )

    def _seconds_now(self, key: str) -> float:
        """Seconds since a trial last began to run."""
        return time.monotonic() - self._started_at.get(key, self._begun_at)

    def _left_of(self, key: str, typical_s: float) -> float:
        """Seconds that are left of a trial that runs: by its own speed, or before its first evaluation as of others."""
        if key in self._training:
            return self._training[key].left_s
        return max(0.0, typical_s - self._seconds_now(key))

    def _keep_best(self, result: TrialResult) -> None:
        """Take a completed trial in: a better one leads before the weights of the one before may go."""
        loser = self._compare(result)
        if self.best is result:
            self.on_leading(result)
        if loser is not None:
            self.on_superseded(loser)

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
            f"{num_ended} of {self.queue.num_trials} trials have ended and stand; resuming runs the others, from their "
            "last checkpoint where there is one (execution.checkpoint_every_minutes), else from their beginning"
        )

    def line(self, last: TrialResult) -> str:
        """One line for a person: how many are done, how the last one ended, the best so far, the time left."""
        left_s = self._left_s()
        ended = f"{len(self.results)} of {self.queue.num_trials} trials ended"
        parts = [f"{ended}: {_describe(last, self.metric)}"]
        if self.best is not None:
            parts.append(f"best {self.best.metrics[self.metric]:.4f} (trial {self.best.number})")
        parts += [f"about {duration(left_s)} left"] if left_s and round(left_s) else []
        return " · ".join(parts)

    def _show(self) -> None:
        """Show what the sweep is at."""
        num_ended = len(self.results)
        self.listener.on_view(self._running.view(num_ended, self.queue.num_trials, self._best_text(), self._left_s()))

    def _best_text(self) -> str:
        """The best completed trial in words; empty before the first."""
        if self.best is None:
            return ""
        return best_text(self.metric, self.best.metrics[self.metric], self.best.number)

    def _left_s(self) -> float | None:
        """Estimated seconds until the last trial has ended, by the time of those that this attempt has ended.

        Before the first one it is by the speed of those that run; None before the first evaluation.
        """
        took = [result.seconds for key, result in self.results.items() if key not in self._earlier]
        if not took:
            took = [training.whole_s for training in self._training.values()]
        if not took:
            return None
        typical_s = fmean(took)
        left_s = [self._left_of(key, typical_s) for key in self._running.keys]
        num_waiting = max(0, self.queue.num_trials - len(self.results) - len(left_s))
        return seconds_left(typical_s, left_s, num_waiting, max(1, self._at_a_time))


def _describe(result: TrialResult, metric: str) -> str:
    if result.state == RunState.FAILED:
        return f"trial {result.number} failed: {result.error}"
    score = f"{metric} {result.metrics[metric]:.4f}" if metric in result.metrics else "no score"
    return f"trial {result.number} {'pruned at' if result.state == RunState.PRUNED else 'reached'} {score}"


def first_reason(results: Mapping[str, TrialResult]) -> str:
    """Reason of the first trial that did not complete."""
    first = min(results.values(), key=lambda result: (result.state != RunState.FAILED, result.number))
    return first.error or ("no reason given" if first.state == RunState.FAILED else "pruned; try scheduler: none")
