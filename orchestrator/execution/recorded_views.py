"""Views of a run of another process, made of what the registry has of it: what the run's own terminal shows.

What is read each time are a few rows, however long the run is and however many trials it has. The registry does not
know how many trials a probe will have.
"""

from abc import ABC, abstractmethod
from datetime import datetime
from statistics import fmean

from orchestrator.distillation.progress_line import StudentStatus
from orchestrator.execution.waiting import age_s
from orchestrator.finetuning.running_trials import (
    TrainingTime,
    best_text,
    fixed_names,
    seconds_left,
    training_time,
    varied_texts,
)
from orchestrator.finetuning.search_space import build_search
from orchestrator.pretraining.progress_line import TrainingStatus
from orchestrator.progress.run_views import RunView, SweepView, TrainingView, TrialView
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.registry.runs.sweep_standing import RunningTrialRecord, SweepStanding
from orchestrator.results import MetricEvent, Split
from orchestrator.specs import DistillSpec, PretrainSpec, SweepSpec
from orchestrator.specs.loading import parse_spec
from orchestrator.specs.probe import ProbeSpec

_SHOWN_SPLITS: tuple[Split, ...] = ("train", "validation")
_SPEED = "tokens_per_s"
_PROBE_AXES = frozenset({"init_from"})
"""Fields of the recipe that the trials of a probe differ in, beside the seed."""


class RecordedView(ABC):
    """View of one attempt at a run, which is read again and again."""

    def __init__(self, registry: Registry, run: RunRecord) -> None:
        self._registry, self._run = registry, run

    @abstractmethod
    def read(self) -> RunView | None:
        """Read what the run is at; None while nothing is recorded."""


def recorded_view(registry: Registry, run: RunRecord) -> RecordedView | None:
    """The view of a run; None for a kind whose terminal shows none, and while no attempt at the run has begun."""
    spec = parse_spec(run.spec) if run.attempt and run.parent_id is None else None
    if isinstance(spec, SweepSpec | ProbeSpec):
        return RecordedSweep(registry, run, spec)
    if isinstance(spec, DistillSpec) and spec.pretraining is None:
        return RecordedStudent(registry, run, spec)
    pretraining = spec.pretraining if isinstance(spec, DistillSpec) else spec
    return RecordedPretraining(registry, run, pretraining) if isinstance(pretraining, PretrainSpec) else None


class _RecordedTraining(RecordedView):
    """View of a training, by its newest measurements."""

    def __init__(self, registry: Registry, run: RunRecord) -> None:
        super().__init__(registry, run)
        self._steps: dict[Split, int] = {}
        """Step of the newest measurement that was taken in, by split."""
        self._view: TrainingView | None = None

    @abstractmethod
    def _tell(self, event: MetricEvent, recorded_at: datetime) -> TrainingView:
        """Take a measurement in; returns the view after it."""

    def read(self) -> RunView | None:
        """Read the newest measurements."""
        newest = self._registry.metrics.newest(self._run.id)
        for split in _SHOWN_SPLITS:
            measured = newest.get(split)
            if measured is not None and self._steps.get(split) != measured.event.step:
                self._steps[split] = measured.event.step
                self._view = self._tell(measured.event, measured.recorded_at)
        return self._view


class RecordedPretraining(_RecordedTraining):
    """View of a pretraining; the time left is by the times at which the attempt's measurements were recorded."""

    def __init__(self, registry: Registry, run: RunRecord, spec: PretrainSpec) -> None:
        super().__init__(registry, run)
        self._status = TrainingStatus(spec.phase_steps())
        since = registry.attempts(run.id)[-1].started_at
        for row in registry.metrics.history_table(run.id, f"train.{_SPEED}").records:
            if row["recorded_at"] >= since:
                self._tell(MetricEvent(row["step"], "train", {_SPEED: 0.0}), row["recorded_at"])
                break

    def _tell(self, event: MetricEvent, recorded_at: datetime) -> TrainingView:
        self._status.line(event, recorded_at.timestamp())
        return self._status.view


class RecordedStudent(_RecordedTraining):
    """View of a student's training on a task."""

    def __init__(self, registry: Registry, run: RunRecord, spec: DistillSpec) -> None:
        super().__init__(registry, run)
        self._status = StudentStatus(0, spec.recipe.epochs, spec.recipe.batch_size)

    def _tell(self, event: MetricEvent, recorded_at: datetime) -> TrainingView:
        self._status.line(event)
        return self._status.view


class RecordedSweep(RecordedView):
    """View of a sweep, or of a probe: a row for each trial that runs."""

    def __init__(self, registry: Registry, run: RunRecord, spec: SweepSpec | ProbeSpec) -> None:
        super().__init__(registry, run)
        self._recipe = spec.recipe
        self._since = registry.attempts(run.id)[-1].started_at
        self._axes: frozenset[str] = _PROBE_AXES
        self._fixed: frozenset[str] = frozenset()
        self._num_trials = 0
        """Number of its trials; 0 for a probe, whose snapshots only its driver knows."""
        self._at_a_time = 1
        if isinstance(spec, SweepSpec):
            self._axes, self._fixed = frozenset(spec.axes), fixed_names(spec)
            self._num_trials = build_search(spec).num_points * len(spec.seeds)

    def read(self) -> RunView | None:
        """Read how the trials stand."""
        metric = self._run.metric
        if metric is None:
            return None
        standing = self._registry.trials.standing(self._run.id, metric, self._since)
        if not standing.num_in:
            return None
        running = standing.running
        num_ended = standing.num_ended
        num_trials = max(self._num_trials, sum(standing.num_in.values())) if self._num_trials else None
        self._at_a_time = max(self._at_a_time, len(running))
        left_s = None
        if num_trials is not None:
            left_s = self._left_s(standing, num_trials - num_ended - len(running))
        best = "" if standing.best is None else best_text(metric, standing.best[1], standing.best[0])
        return SweepView(metric, [*map(self._trial, running)], num_ended, num_trials, best, left_s)

    def _left_s(self, standing: SweepStanding, num_waiting: int) -> float | None:
        """Estimated seconds to the end: by the mean time of ended trials, or by the speed of running ones before.

        None before the first evaluation.
        """
        trainings = [self._training(trial) for trial in standing.running]
        known = [training.whole_s for training in trainings if training is not None]
        typical_s = standing.typical_s
        if typical_s is None:
            if not known:
                return None
            typical_s = fmean(known)
        left_s = [
            max(0.0, typical_s - age_s(trial.started_at)) if training is None else training.left_s
            for trial, training in zip(standing.running, trainings, strict=True)
        ]
        return seconds_left(typical_s, left_s, max(0, num_waiting), self._at_a_time)

    def _training(self, trial: RunningTrialRecord) -> TrainingTime | None:
        """Time of a trial's training, by its speed; None before its first evaluation."""
        if trial.speed is None:
            return None
        batch_size = int(trial.parameters.get("batch_size", self._recipe.batch_size))
        return training_time(trial.speed, self._num_epochs(trial), batch_size)

    def _num_epochs(self, trial: RunningTrialRecord) -> float:
        return float(trial.parameters.get("epochs", self._recipe.epochs))

    def _trial(self, trial: RunningTrialRecord) -> TrialView:
        values = {name: value for name, value in trial.parameters.items() if name in self._axes}
        varied = varied_texts(values, trial.seed, self._fixed)
        num_epochs = self._num_epochs(trial)
        if not trial.evaluations:
            return TrialView(trial.number, varied, num_epochs=num_epochs)
        last, best = trial.evaluations[-1], max(each.score for each in trial.evaluations)
        return TrialView(trial.number, varied, last.epoch or 0.0, num_epochs, last.score, best)
