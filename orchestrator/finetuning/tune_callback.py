"""Both ends of Ray Tune's loop: a searcher that hands it trials, a callback that tells the sweep what became of them.

Tune pickles both into its snapshot; they pickle to nothing, so that no engine or file travels along.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.result import HOSTNAME
from ray.tune.search import Searcher

from orchestrator.finetuning.interrupts import HeldInterrupt
from orchestrator.finetuning.sweep_progress import SweepProgress
from orchestrator.finetuning.trial_room import TrialRoom
from orchestrator.finetuning.trial_watch import TrialWatch

PLAN, EVENTS, RESULT, SCORE, EVALUATION, REFUSAL = "plan", "events", "result", "score", "evaluation", "refusal"
"""Keys of what passes between the driver and a trial's process."""

logger = logging.getLogger(__name__)


class TrialSearcher(Searcher):  # type: ignore[misc]
    """Hands the queue's trials to Tune."""

    def __init__(self, progress: SweepProgress, room: TrialRoom) -> None:
        super().__init__()
        self._progress, self._room = progress, room

    def suggest(self, trial_id: str) -> Any:
        """Return the next trial's configuration, None while there is no room, or that there is no other."""
        if not self._room.has_room():
            return None
        plan = self._progress.queue.next()
        if plan is None:
            return Searcher.FINISHED
        self._room.add()
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
        if HOSTNAME in result:
            self._progress.ran_on(trial.config[PLAN], str(result[HOSTNAME]))
        if EVENTS in result:
            self._guard(lambda: self._progress.reported(trial.config[PLAN], result[EVENTS]))

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        plan, result = trial.config[PLAN], trial.last_result.get(RESULT)
        self._watch.ended(plan.key)
        self._guard(lambda: self._progress.ended(plan, result or self._progress.pruned(plan)))

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
        self._guard(self._progress.look)
        self.raise_error()
        if self._interrupt.error is not None:
            logger.info(f"stopping; {self._progress.standing()}")
            raise SweepInterruptedError

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
