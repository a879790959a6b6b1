"""Ray Tune runs the trials: our queue is its searcher, a callback tells the sweep's progress what happens.

Tune's own snapshots are never read again: resuming is running the queue with what the registry knows as finished.
Tune pickles searcher and callback into its snapshot; both pickle to nothing, so that no engine or file travels along.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from ray import tune
from ray.tune import schedulers as tune_schedulers
from ray.tune.experiment import Trial
from ray.tune.search import ConcurrencyLimiter, Searcher

from orchestrator.errors import ClusterError, RunFailedError
from orchestrator.finetuning.interrupts import HeldInterrupt, held_interrupts
from orchestrator.finetuning.search_space import TrialPlan
from orchestrator.finetuning.sweep_progress import SweepProgress
from orchestrator.finetuning.trial_checkpoint import Report
from orchestrator.finetuning.trial_room import TrialRoom, room_for_trials, trial_group
from orchestrator.finetuning.trial_watch import TrialWatch
from orchestrator.results import MetricEvent, TrialResult
from orchestrator.search.schedulers import SCHEDULERS
from orchestrator.specs import SweepSpec
from orchestrator.storage import delete, join

PLAN, EVENTS, RESULT, SCORE, EVALUATION, REFUSAL = "plan", "events", "result", "score", "evaluation", "refusal"
"""Keys of what passes between the driver and a trial's process."""

_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",
}
"""Environment in which Tune writes no logs, prints nothing, accepts reports without a score, leaves SIGINT alone, and
starts as many processes at a time as `TrialRoom` gives it trials."""

_PATIENCE = "TUNE_FUNCTION_THREAD_TIMEOUT_S"
"""Seconds that a pruned trial's thread gets to end before its process is used again; 2 unless set, few when busy."""

RunTrial = Callable[[TrialPlan, Report], TrialResult | None]
logger = logging.getLogger(__name__)


class _Searcher(Searcher):  # type: ignore[misc]
    """Hands the queue's trials to Tune; one that has waited for others comes again, as another trial of Tune's."""

    def __init__(self, progress: SweepProgress, room: TrialRoom) -> None:
        super().__init__()
        self._progress, self._room = progress, room

    def suggest(self, trial_id: str) -> Any:
        if not self._room.has_room():
            return None
        plan = self._progress.next()
        if plan is None:
            return Searcher.FINISHED if self._progress.queue.is_used_up() else None
        self._room.add()
        return {PLAN: plan}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Do nothing: the callback records results, as it knows why a trial ended."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: there is no state worth keeping."""

    def __reduce__(self) -> tuple[Any, ...]:
        return object, ()


class _InterruptedError(Exception):
    """Ends Tune's loop, with its trials, after a signal; Tune does not clean up after a KeyboardInterrupt."""


class _Callback(tune.Callback):  # type: ignore[misc]
    """Tells the sweep's progress. An error in there ends the sweep; Tune would have turned it into a failed trial."""

    def __init__(
        self,
        progress: SweepProgress,
        watch: TrialWatch,
        room: TrialRoom,
        interrupt: HeldInterrupt,
        place: Callable[[], tune.PlacementGroupFactory],
    ) -> None:
        self._progress, self._watch, self._room, self._interrupt = progress, watch, room, interrupt
        self._place = place
        self._error: Exception | None = None

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        self._room.count(sum(trial.status in (Trial.PENDING, Trial.RUNNING) for trial in trials))

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._watch.began(trial.config[PLAN].key)
        self._guard(lambda: self._progress.started(trial.config[PLAN]))

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        plan = trial.config[PLAN]
        self._watch.ended(plan.key)
        logger.warning(f"trial {plan.number}: {_death_reason(trial)}; it is tried again")
        if trial.status == Trial.PENDING:  # its node may be gone, and with it those that the head was left out for
            trial.update_resources(self._place())

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Mapping[str, Any], **info: Any
    ) -> None:
        if REFUSAL in result:
            self._error = self._error or result[REFUSAL]
        if EVENTS in result:
            self._guard(lambda: self._progress.reported(trial.config[PLAN], result[EVENTS]))

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        plan, result = trial.config[PLAN], trial.last_result.get(RESULT)
        self._watch.ended(plan.key)
        self._guard(lambda: self._progress.ended(plan, result) if result else self._progress.left(plan))

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        plan, reason = trial.config[PLAN], _death_reason(trial)
        self._watch.ended(plan.key)
        self._guard(lambda: self._progress.ended(plan, self._progress.died(plan, reason)))

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """A trial whose process could not be used again fails without on_trial_error."""
        for trial in trials:
            if trial.status == Trial.ERROR and trial.config[PLAN].key not in self._progress.results:
                self.on_trial_error(0, trials, trial)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        self._guard(self._watch.look)
        self.raise_error()
        if self._interrupt.error is not None:
            logger.info(f"stopping; {self._progress.standing()}")
            raise _InterruptedError

    def raise_error(self) -> None:
        """Raise the error that has come up, if there is one."""
        if self._error is not None:
            raise self._error

    def _guard(self, tell: Callable[[], None]) -> None:
        try:
            if self._error is None:
                tell()
        except Exception as error:
            self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return object, ()


def _death_reason(trial: Trial) -> str:
    """The first line of what Ray says about the process that died."""
    lines = Path(trial.error_file).read_text(encoding="utf-8").splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("Failure #")]
    after = lines[heads[-1] + 1 :] if heads else lines
    return f"the trial's process died: {next((line.strip() for line in after if line.strip()), 'no reason given')}"


def run_with_tune(
    spec: SweepSpec,
    run_trial: RunTrial,
    progress: SweepProgress,
    watch: TrialWatch,
    run_folder: str,
    max_evaluations: int,
) -> None:
    """Run the queue's trials to their end; results are in `progress`. A local `run_folder` is an absolute path.

    Raises: KeyboardInterrupt when a signal ended it, the one of the signal's handler; what the listener or the watch
        raised; a ClusterError of `run_trial`; RunFailedError where Tune ends while trials are left.
    """
    scratch = join(run_folder, "ray")
    delete(scratch)  # of an earlier attempt that was killed, maybe after its last trial
    if progress.queue.is_done():
        return
    with _quietly(), held_interrupts() as interrupt:
        room = room_for_trials(spec.execution)
        callback = _Callback(progress, watch, room, interrupt, partial(trial_group, spec.execution))
        run_config = tune.RunConfig(
            name=f"tune-{uuid4().hex}",
            storage_path=scratch,
            failure_config=tune.FailureConfig(max_failures=spec.execution.max_failures),
            callbacks=[callback],
            verbose=0,
        )
        try:
            _build_tuner(spec, run_trial, _Searcher(progress, room), progress.metric, max_evaluations, run_config).fit()
        except _InterruptedError:
            assert interrupt.error is not None, "the callback has seen it"
        finally:
            with suppress(OSError):  # Ray may still write there
                delete(scratch)
    callback.raise_error()  # one that came up when Tune ended, after its last step
    if interrupt.error is not None:
        raise interrupt.error
    if not progress.queue.is_done():
        raise RunFailedError(f"Ray Tune ended before all trials had; {progress.standing()}")


def _build_tuner(
    spec: SweepSpec,
    run_trial: RunTrial,
    searcher: Searcher,
    metric: str,
    max_evaluations: int,
    run_config: tune.RunConfig,
) -> tune.Tuner:
    """Make Tune's object for a sweep: the queue's trials, their shares of the machine, the scheduler."""
    execution = spec.execution

    def trainable(config: dict[str, Any]) -> None:
        os.environ[_PATIENCE] = "60"
        try:
            result = run_trial(config[PLAN], _report)
        except ClusterError as error:
            tune.report({REFUSAL: error})  # raised here, it would be the end of this trial alone
            return
        if result is None:
            return
        scores = {SCORE: result.metrics[metric], EVALUATION: max_evaluations} if metric in result.metrics else {}
        tune.report({RESULT: result, **scores})

    trainable.__name__ = f"trial of {spec.name}"  # what the dashboard calls the processes, which take trial after trial
    if execution.max_concurrent_trials is not None:
        searcher = ConcurrencyLimiter(searcher, max_concurrent=execution.max_concurrent_trials)
    return tune.Tuner(
        tune.with_resources(trainable, lambda config: trial_group(execution)),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=build_scheduler(spec, max_evaluations),
            num_samples=-1,  # the searcher says when there is no other
            reuse_actors=True,
            trial_name_creator=_trial_name,
            trial_dirname_creator=_trial_name,
        ),
        run_config=run_config,
    )


def _report(events: Sequence[MetricEvent], score: float | None, evaluation: int) -> None:
    """Report an evaluation to Tune; the scheduler ignores one without a score."""
    tune.report({EVENTS: tuple(events), **({} if score is None else {SCORE: score, EVALUATION: evaluation})})


def _trial_name(trial: Trial) -> str:
    plan = trial.config[PLAN]
    return f"{plan.number:05d}-{plan.key}" + ("" if plan.pause_after is None else f"-{plan.pause_after}")


def build_scheduler(spec: SweepSpec, max_evaluations: int) -> tune_schedulers.TrialScheduler:
    """Tune's object for the spec's scheduler; a trial's time is counted in evaluations."""
    scheduler = SCHEDULERS[spec.scheduler]
    options = scheduler.options(
        score=SCORE,
        evaluation=EVALUATION,
        max_evaluations=max_evaluations,
        reduction_factor=spec.reduction_factor,
        grace_evaluations=spec.grace_evaluations,
    )
    return getattr(tune_schedulers, scheduler.tune_class)(**options)


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep Tune's tables, log files and log lines away, and give the signal handler back that it replaces."""
    tune_logger = logging.getLogger("ray.tune")
    level, environment = tune_logger.level, {name: os.environ.get(name) for name in _ENVIRONMENT}
    handler = signal.getsignal(signal.SIGUSR1)
    os.environ.update(_ENVIRONMENT)
    tune_logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        tune_logger.setLevel(level)
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if signal.getsignal(signal.SIGUSR1) is not handler:
            signal.signal(signal.SIGUSR1, handler)
