"""Ray Tune runs the trials: the sweep's queue is its searcher, a callback tells the sweep's progress what happens.

Tune's own snapshots are never read: resuming is running the queue without the finished trials. Tune pickles searcher
and callback into them; both pickle to nothing, so that no engine or file travels along. Signals that end a process are
held back while Tune works: an exception from within its loop would leave trials.
"""

import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from uuid import uuid4

from ray import tune
from ray.tune import schedulers as tune_schedulers
from ray.tune.experiment import Trial
from ray.tune.result import HOSTNAME
from ray.tune.search import Searcher

from orchestrator.base.errors import ClusterError, RunFailedError
from orchestrator.base.results import MessageEvent, MetricEvent, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.finetuning.search_space import TrialPlan
from orchestrator.finetuning.sweep_progress import SweepProgress
from orchestrator.finetuning.training_checkpoints import Report, numbered_evaluations
from orchestrator.finetuning.trial_journal import EndedTrial
from orchestrator.finetuning.trial_slots import TrialSlots, trial_group
from orchestrator.specs import SweepSpec
from orchestrator.storage import delete, join
from orchestrator.training.event_queue import WorkerPlace, WorkersStatus
from orchestrator.training.worker_watch import WorkerWatch

PLAN, EVENTS, RESULT, SCORE, EVALUATION, REFUSAL = "plan", "events", "result", "score", "evaluation", "refusal"
"""Keys of what passes between the driver and a trial's process."""
logger = logging.getLogger(__name__)
_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",
}
"""Environment in which Tune writes no logs, prints nothing, accepts reports without a score, leaves SIGINT alone, and
starts a process for each trial that `TrialSlots` lets it have."""

_PATIENCE = "TUNE_FUNCTION_THREAD_TIMEOUT_S"
"""Seconds that a pruned trial's thread gets to end before its process is used again; 2 unless set, few when busy."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SOME_TRIAL, _NO_TRIAL = WorkersStatus((WorkerPlace(0, "", 0),)), WorkersStatus()
RunTrial = Callable[[TrialPlan, Report], TrialResult]


def run_with_tune(
    spec: SweepSpec,
    run_trial: RunTrial,
    progress: SweepProgress,
    watch: WorkerWatch,
    run_folder: str,
    max_evaluations: int,
    finished: Collection[EndedTrial] = (),
) -> None:
    """Run the queue's trials to their end; results are in `progress`. A local `run_folder` is an absolute path.

    The trials that an earlier attempt has `finished` are what the scheduler compares the others with, too.

    Raises: KeyboardInterrupt when a signal ended it, the one of the signal's handler; what the listener or the watch
        raised; a ClusterError of `run_trial`; RunFailedError where Tune ends while trials are left.
    """
    scratch = join(run_folder, "ray")
    delete(scratch)  # of an earlier attempt that was killed, maybe after its last trial
    if progress.queue.is_done():
        return
    with _quietly(), held_interrupts() as interrupt:
        slots = TrialSlots(spec.execution)
        callback = TrialCallback(progress, watch, slots, interrupt)
        run_config = tune.RunConfig(
            name=f"tune-{uuid4().hex}",
            storage_path=scratch,
            failure_config=tune.FailureConfig(max_failures=spec.execution.max_failures),
            callbacks=[callback],
            verbose=0,
        )
        try:
            searcher = TrialSearcher(progress, slots)
            scheduler = build_scheduler(spec, max_evaluations, progress.metric, finished)
            _build_tuner(spec, run_trial, searcher, scheduler, progress.metric, max_evaluations, run_config).fit()
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
    scheduler: tune_schedulers.TrialScheduler,
    metric: str,
    max_evaluations: int,
    run_config: tune.RunConfig,
) -> tune.Tuner:
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
    return tune.Tuner(
        tune.with_resources(trainable, lambda config: trial_group(spec.execution)),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=scheduler,
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


def build_scheduler(
    spec: SweepSpec, max_evaluations: int, metric: str, finished: Collection[EndedTrial] = ()
) -> tune_schedulers.TrialScheduler:
    """Tune's object for the spec's scheduler, told of finished trials; a trial's time is counted in evaluations.

    ASHA: asynchronous successive halving (Li et al. 2018, https://arxiv.org/abs/1810.05934). One in `reduction_factor`
    trials, the best, goes on after the grace and each time after so many times as many evaluations; the others end
    there.
    """
    if spec.scheduler == "none":
        return tune_schedulers.FIFOScheduler()
    longest = max_evaluations + 1  # beyond the last evaluation: a trial stops by its own schedule
    scheduler = tune_schedulers.ASHAScheduler(
        time_attr=EVALUATION,
        metric=SCORE,
        mode="max",
        max_t=longest,
        grace_period=min(spec.grace_evaluations, longest),
        reduction_factor=spec.reduction_factor,
    )
    for trial in finished:
        stand_in, result = SimpleNamespace(trial_id=trial.result.key), trial.result
        scheduler.on_trial_add(None, stand_in)
        for _, score, number in numbered_evaluations(trial.events, metric):
            scheduler.on_trial_result(None, stand_in, {SCORE: score, EVALUATION: number})
        if result.state == RunState.COMPLETED:
            scheduler.on_trial_complete(None, stand_in, {SCORE: result.metrics[metric], EVALUATION: max_evaluations})
    return scheduler


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


@dataclass
class HeldInterrupt:
    """Interruption that has come and is not raised yet."""

    error: KeyboardInterrupt | None = None
    """The exception that the handler of the first signal has raised."""


@contextmanager
def held_interrupts() -> Iterator[HeldInterrupt]:
    """Hold back what the first SIGINT, SIGTERM or SIGHUP raises within the block, for the caller to raise in good time.

    Each signal goes to the handler that was there before, and so does a second one, whose exception is raised at once.
    A handler that puts others in its place, as the command line's does to leave at once, has its way. Outside of the
    main thread nothing is held.
    """
    held = HeldInterrupt()
    if threading.current_thread() is not threading.main_thread():
        yield held
        return
    before = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}

    def hold(number: int, frame: FrameType | None) -> None:
        try:
            before[signal.Signals(number)](number, frame)
        except KeyboardInterrupt as error:
            if held.error is not None:
                raise
            held.error = error

    for number in before:
        signal.signal(number, hold)
    try:
        yield held
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is hold:
                signal.signal(number, handler)


class TrialSearcher(Searcher):  # type: ignore[misc]
    """Hands the queue's trials to Tune."""

    def __init__(self, progress: SweepProgress, slots: TrialSlots) -> None:
        super().__init__()
        self._progress, self._slots = progress, slots

    def suggest(self, trial_id: str) -> Any:
        """Return the next trial's configuration, None while no slot is free, or that there is no other."""
        if not self._slots.has_free():
            return None
        plan = self._progress.queue.next()
        if plan is None:
            return Searcher.FINISHED
        self._slots.num_taken += 1
        return {PLAN: plan}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Do nothing: the callback records results, as it knows why a trial ended."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: there is no state worth keeping."""

    def __reduce__(self) -> tuple[Any, ...]:
        return object, ()


class SweepInterruptedError(Exception):
    """Ends Tune's loop, with its trials, after a signal; Tune does not clean up after a KeyboardInterrupt."""


class TrialCallback(tune.Callback):  # type: ignore[misc]
    """Tells the sweep's progress. An error in there ends the sweep; Tune would have turned it into a failed trial."""

    def __init__(
        self, progress: SweepProgress, watch: WorkerWatch, slots: TrialSlots, interrupt: HeldInterrupt
    ) -> None:
        self._progress, self._watch, self._slots, self._interrupt = progress, watch, slots, interrupt
        self._error: Exception | None = None

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        statuses = Counter(trial.status for trial in trials)
        self._slots.num_taken = statuses[Trial.PENDING] + statuses[Trial.RUNNING]
        self._guard(lambda: self._watch.look(_SOME_TRIAL if statuses[Trial.RUNNING] else _NO_TRIAL))

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._guard(lambda: self._progress.started(trial.config[PLAN]))

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        logger.warning(f"trial {trial.config[PLAN].number}: {_death_reason(trial)}; it is tried again")
        if trial.status == Trial.PENDING:  # its node may be gone, and with it those that the head was left out for
            trial.update_resources(trial_group(self._slots.execution))

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Mapping[str, Any], **info: Any
    ) -> None:
        if REFUSAL in result:
            self._error = self._error or result[REFUSAL]
        if EVENTS in result:
            self._guard(lambda: self._progress.reported(trial.config[PLAN], result[EVENTS], result.get(HOSTNAME)))

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        plan, result = trial.config[PLAN], trial.last_result.get(RESULT)
        self._guard(lambda: self._progress.ended(plan, result or self._progress.pruned(plan)))

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        plan, reason = trial.config[PLAN], _death_reason(trial)
        self._guard(lambda: self._progress.ended(plan, self._progress.died(plan, reason)))

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """A trial whose process could not be used again fails without on_trial_error."""
        for trial in trials:
            if trial.status == Trial.ERROR and trial.config[PLAN].key not in self._progress.results:
                self.on_trial_error(0, trials, trial)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        self.raise_error()
        if self._interrupt.error is not None:
            logger.info(f"stopping; {self._progress.standing()}")
            raise SweepInterruptedError

    def raise_error(self) -> None:
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
