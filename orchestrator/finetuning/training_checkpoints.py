"""Checkpoints of a fine-tuning, written after evaluations, from which it goes on.

A checkpoint's tensors are the weights, the optimizer's and the best weights so far; the rest is its JSON. Order,
learning rate and dropout are functions of the step, and dropout of the size of micro-batches, which is in the JSON too:
nothing else decides what comes next.
"""

import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from time import perf_counter
from types import MappingProxyType
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.optim import Optimizer

from bert_core.errors import CheckpointError, NewerFormatError
from orchestrator.base.results import Event, MessageEvent, MetricEvent
from orchestrator.training.checkpoints import Checkpoints, accept_drift, check_drift, delete_checkpoints, versions

Report = Callable[[Sequence[MetricEvent | MessageEvent], float | None, int], None]
"""Function that is told of each evaluation: its events, with messages since the last one, the best score so far, its
number.

The score is None at the last evaluation, after which there is nothing to decide.
"""
logger = logging.getLogger(__name__)
State: TypeAlias = tuple[int, Mapping[str, Any], dict[str, Tensor]]
"""State of a training after an evaluation: its step, values that JSON can hold, the best weights so far."""


def numbered_evaluations(
    measured: Sequence[MetricEvent], metric: str
) -> Iterator[tuple[tuple[MetricEvent, ...], float, int]]:
    """Each evaluation of a trial, as `Report` is told of it: events, best score of the metric so far, number."""
    best_score = -math.inf
    for number, (_, together) in enumerate(groupby(measured, key=lambda event: event.step), start=1):
        events = tuple(together)
        best_score = max(best_score, *(event.values[metric] for event in events if event.split == "validation"))
        yield events, best_score, number


class CheckpointedTraining:
    """Reports a training's evaluations, and saves them with the training: they may not be recorded otherwise.

    Args:
        identity: what decides the weights beside the step, by name; a checkpoint of other values is refused.
        details: plain values of some of these names, which tell what has changed where an identity differs.
        allow_drift: whether to go on from such a checkpoint all the same.
        report: called with events; a training that goes on reports those before its checkpoint again.
        on_saved: told the step of each checkpoint; raising ends the training, which goes on from there.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        identity: Mapping[str, object],
        report: Callable[[Sequence[Event]], None],
        on_saved: Callable[[int], None] = lambda step: None,
        *,
        details: Mapping[str, object] = MappingProxyType({}),
        allow_drift: bool = False,
    ) -> None:
        self._checkpoints, self._report, self._on_saved = checkpoints, report, on_saved
        self._allow_drift = allow_drift
        self._identity, self._details = {**identity, **versions()}, dict(details)
        self._reported: list[MetricEvent] = []

    def report_evaluation(self, events: Sequence[MetricEvent], score: float | None, number: int) -> None:
        """Report an evaluation, with the values that `Report` has; it may be saved next."""
        self._reported += events
        self._report(events)

    def save(
        self,
        step: int,
        values: Mapping[str, Any],
        model: nn.Module,
        optimizer: Optimizer,
        best_weights: Mapping[str, Tensor],
    ) -> None:
        """Write a checkpoint. Raises: RunStoppedError when a later attempt has begun."""
        reported = [event._asdict() for event in self._reported]
        extra = {"identity": self._identity, "details": self._details, "snapshot": values, "reported": reported}
        self._checkpoints.save(step, _with_best(model, best_weights), optimizer, extra)
        self._on_saved(step)

    def restore(self, model: nn.Module, optimizer: Optimizer) -> State | None:
        """Load the checkpoint into model and optimizer, and return what was saved beside; None when there is none.

        Raises: what `Checkpoints.read_newest` raises; CheckpointError for one of another identity. Nothing of it is
            loaded then.
        """
        found = self._checkpoints.read_newest()
        self._checkpoints.tidy()
        if found is None:
            return None
        event, state = found
        extra = state.extra
        drifts = accept_drift(check_drift(extra, self._identity, self._details), event.step, allowed=self._allow_drift)
        both = _with_best(model, model.state_dict())
        state.load_into(both, optimizer)
        self._report(drifts)
        self._reported = [MetricEvent(**values) for values in extra["reported"]]
        self._report(self._reported[:])
        self._report([MessageEvent(f"goes on after step {event.step:,}")])
        return event.step, extra["snapshot"], both[1].state_dict()


def _with_best(model: nn.Module, best_weights: Mapping[str, Tensor]) -> nn.ModuleList:
    """The model, and a copy of it with the best weights."""
    best = copy.deepcopy(model)
    best.load_state_dict(best_weights)
    return nn.ModuleList([model, best])


class TrialCheckpoint(CheckpointedTraining):
    """Saves a trial after an evaluation, so long after the last time; a scheduler decides again on what it reports.

    Args:
        checkpoints: the trial's; one is enough.
        report: told of each evaluation; those before a checkpoint are reported again, one by one.
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
        super().__init__(checkpoints, identity, self._report_again)
        self._report_one, self._metric = report, metric
        self._interval_s, self._saved_at = interval_s, perf_counter()

    def save(self, step: int, values: Mapping[str, Any], *state: Any) -> None:
        """Write a checkpoint so long after the last one; none at the end, when only results are left to write."""
        if not values["is_last"] and perf_counter() - self._saved_at >= self._interval_s:
            self._saved_at = perf_counter()
            super().save(step, values, *state)

    def restore(self, model: nn.Module, optimizer: Optimizer) -> State | None:
        """Load the checkpoint; one that is damaged, or of another device, is deleted, and the trial begins anew.

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
        self._reported += events
        self._report_one(events, score, number)

    def _report_again(self, events: Sequence[Event]) -> None:
        measured = [event for event in events if isinstance(event, MetricEvent)]
        for evaluation, best_score, number in numbered_evaluations(measured, self._metric):
            self._report_one(evaluation, best_score, number)
