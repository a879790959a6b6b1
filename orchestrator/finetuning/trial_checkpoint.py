"""Checkpoint of a trial: when it is written, and what is reported again from it."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from time import perf_counter

from torch import nn
from torch.optim import Optimizer

from bert_core.errors import CheckpointError, NewerFormatError
from orchestrator.finetuning.checkpointed_training import CheckpointedTraining, TrainingSnapshot
from orchestrator.results import Event, MessageEvent, MetricEvent
from orchestrator.training.checkpoints import Checkpoints, delete_checkpoints

Report = Callable[[Sequence[MetricEvent | MessageEvent], float | None, int], None]
"""Function that is told of each evaluation: its events, with messages since the last one, the best score so far, its
number.

The score is None at the last evaluation, after which there is nothing to decide.
"""
logger = logging.getLogger(__name__)


class TrialCheckpoint(CheckpointedTraining):
    """Saves a trial after an evaluation, so long after the last time.

    Args:
        checkpoints: the trial's; one is enough.
        identity: as `CheckpointedTraining` takes it.
        report: told of each evaluation; those before a checkpoint are reported again, one by one, since a scheduler
            decides on them as it did before.
        metric: the score that ranks trials.
        interval_s: training time, at least, between two checkpoints.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        identity: Mapping[str, object],
        report: Report,
        *,
        metric: str,
        interval_s: float,
    ) -> None:
        super().__init__(checkpoints, identity, self._report_again, is_due=saves_at_intervals(interval_s))
        self._report_evaluation, self._metric = report, metric
        self._warnings: list[MessageEvent] = []

    def restore(self, model: nn.Module, optimizer: Optimizer) -> TrainingSnapshot | None:
        """Load the checkpoint into model and optimizer; None when there is none.

        One that cannot be used, since it is damaged or of another device, is deleted with a warning; the trial begins
        anew then.

        Raises: NewerFormatError for a checkpoint of a newer version, OSError where the storage fails; it stays then.
        """
        try:
            return super().restore(model, optimizer)
        except NewerFormatError:
            raise
        except CheckpointError as error:
            logger.warning(f"the trial begins anew, and its checkpoints are deleted: {error}")
            delete_checkpoints(self._checkpoints.run_folder)
            return None

    def report_evaluation(self, events: Sequence[MetricEvent], score: float | None, number: int) -> None:
        """Report an evaluation, which may be saved next, with the warnings since the one before."""
        self.note(events)
        warnings, self._warnings = self._warnings, []
        self._report_evaluation([*warnings, *events], score, number)

    def warn(self, text: str) -> None:
        """Take in a warning, which goes with the next evaluation; until then the worker's log alone has it."""
        logger.warning(text)
        self._warnings.append(MessageEvent(text, "warning"))

    def _report_again(self, events: Sequence[Event]) -> None:
        """Report the evaluations before a checkpoint."""
        measured = [event for event in events if isinstance(event, MetricEvent)]
        best_score = -math.inf
        for number, (_, pair) in enumerate(groupby(measured, key=lambda event: event.step), start=1):
            evaluation = tuple(pair)
            scores = (event.values[self._metric] for event in evaluation if event.split == "validation")
            best_score = max(best_score, *scores)
            self._report_evaluation(evaluation, best_score, number)


def saves_at_intervals(interval_s: float) -> Callable[[TrainingSnapshot], bool]:
    """Return a rule by which checkpoints are due, so long after the last one or after now.

    None is due at the end of a training: all that is left to do then is to write its results.
    """
    last_at = perf_counter()

    def is_due(snapshot: TrainingSnapshot) -> bool:
        nonlocal last_at
        if snapshot.is_last or perf_counter() - last_at < interval_s:
            return False
        last_at = perf_counter()
        return True

    return is_due
