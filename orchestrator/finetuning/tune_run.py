"""Ray Tune runs the trials: our queue is its searcher, a callback tells the sweep's progress what happens.

Tune's own snapshots are never read again: resuming is running the queue with what the registry knows as finished.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from uuid import uuid4

from ray import tune
from ray.tune import schedulers as tune_schedulers
from ray.tune.experiment import Trial
from ray.tune.search import ConcurrencyLimiter, Searcher

from orchestrator.errors import ClusterError, RunFailedError
from orchestrator.finetuning.interrupts import held_interrupts
from orchestrator.finetuning.search_space import TrialPlan
from orchestrator.finetuning.sweep_progress import SweepProgress
from orchestrator.finetuning.trial_checkpoint import Report
from orchestrator.finetuning.trial_room import room_for_trials, trial_group
from orchestrator.finetuning.trial_watch import TrialWatch
from orchestrator.finetuning.tune_callback import (
    EVALUATION,
    EVENTS,
    PLAN,
    REFUSAL,
    RESULT,
    SCORE,
    SweepInterruptedError,
    TrialCallback,
    TrialSearcher,
)
from orchestrator.results import MessageEvent, MetricEvent, TrialResult
from orchestrator.specs import SweepSpec
from orchestrator.storage import delete, join

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

RunTrial = Callable[[TrialPlan, Report], TrialResult]


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
        callback = TrialCallback(progress, watch, room, interrupt, partial(trial_group, spec.execution))
        run_config = tune.RunConfig(
            name=f"tune-{uuid4().hex}",
            storage_path=scratch,
            failure_config=tune.FailureConfig(max_failures=spec.execution.max_failures),
            callbacks=[callback],
            verbose=0,
        )
        try:
            _build_tuner(
                spec, run_trial, TrialSearcher(progress, room), progress.metric, max_evaluations, run_config
            ).fit()
        except SweepInterruptedError:
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
        scores = {SCORE: result.metrics[metric], EVALUATION: max_evaluations} if metric in result.metrics else {}
        tune.report({RESULT: result, **scores})

    # What the dashboard calls the processes, which take trial after trial; Ray takes ASCII only.
    trainable.__name__ = f"trial of {spec.name}".encode("ascii", "backslashreplace").decode()
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


def _report(events: Sequence[MetricEvent | MessageEvent], score: float | None, evaluation: int) -> None:
    """Report an evaluation to Tune; the scheduler ignores one without a score."""
    tune.report({EVENTS: tuple(events), **({} if score is None else {SCORE: score, EVALUATION: evaluation})})


def _trial_name(trial: Trial) -> str:
    plan = trial.config[PLAN]
    return f"{plan.number:05d}-{plan.key}"


def build_scheduler(spec: SweepSpec, max_evaluations: int) -> tune_schedulers.TrialScheduler:
    """Tune's object for the spec's scheduler; a trial's time is counted in evaluations.

    ASHA: asynchronous successive halving (Li et al. 2018, https://arxiv.org/abs/1810.05934). One in `reduction_factor`
    trials, the best, goes on after the grace and each time after so many times as many evaluations; the others end
    there.
    """
    if spec.scheduler == "none":
        return tune_schedulers.FIFOScheduler()
    longest = max_evaluations + 1  # beyond the last evaluation: a trial stops by its own schedule
    return tune_schedulers.ASHAScheduler(
        time_attr=EVALUATION,
        metric=SCORE,
        mode="max",
        max_t=longest,
        grace_period=min(spec.grace_evaluations, longest),
        reduction_factor=spec.reduction_factor,
    )


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
