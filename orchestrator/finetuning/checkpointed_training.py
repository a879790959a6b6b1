"""Checkpoints of a fine-tuning, one per evaluation, from which it goes on.

A checkpoint's tensors are the weights, the optimizer's and the best weights so far; the rest is its JSON. Order,
learning rate and dropout are functions of the step, and dropout of the size of micro-batches, which is in the JSON too:
nothing else decides what comes next.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from orchestrator.results import Event, MessageEvent, MetricEvent
from orchestrator.training.checkpoints import Checkpoints, accept_drift, check_drift, versions


@dataclass(frozen=True)
class TrainingSnapshot:
    """State of a training after an evaluation."""

    step: int
    is_last: bool
    """Whether the training ended with this evaluation."""
    num_bad_evaluations: int
    """Number of evaluations since the best one."""
    best: Mapping[str, Any]
    """Best evaluation, in values that JSON can hold."""
    best_weights: Mapping[str, Tensor]
    micro_batch_size: int | None = None
    """Examples that go through the model at a time; None for the recipe's number."""


_SAVED_VALUES = ("is_last", "num_bad_evaluations", "best", "micro_batch_size")
"""Fields of a snapshot that a checkpoint's JSON holds."""


class CheckpointedTraining:
    """Saves a training after an evaluation, and what was reported until then, which may not be recorded otherwise.

    Args:
        identity: what decides the weights beside the step, by name; a checkpoint of other values is refused.
        details: plain values of some of these names, which tell what has changed where an identity differs.
        allow_drift: whether to go on from such a checkpoint all the same.
        report: called with events; a training that goes on reports those before its checkpoint again.
        on_saved: told the step of each checkpoint; raising ends the training, which goes on from there.
        is_due: decides after which evaluations a checkpoint is written; after all, when left out.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        identity: Mapping[str, object],
        report: Callable[[Sequence[Event]], None],
        on_saved: Callable[[int], None] = lambda step: None,
        *,
        is_due: Callable[[TrainingSnapshot], bool] = lambda snapshot: True,
        details: Mapping[str, object] = MappingProxyType({}),
        allow_drift: bool = False,
    ) -> None:
        self._checkpoints, self._report, self._on_saved = checkpoints, report, on_saved
        self._is_due, self._allow_drift = is_due, allow_drift
        self._identity, self._details = {**identity, **versions()}, dict(details)
        self._reported: list[MetricEvent] = []

    def report(self, events: Sequence[MetricEvent]) -> None:
        """Report an evaluation."""
        self.note(events)
        self._report(events)

    def note(self, events: Sequence[MetricEvent]) -> None:
        """Take an evaluation into later checkpoints that the caller reports itself."""
        self._reported += events

    def save(self, model: nn.Module, optimizer: Optimizer, snapshot: TrainingSnapshot) -> None:
        """Write a checkpoint where one is due.

        Raises: RunStoppedError when a later attempt has begun.
        """
        if not self._is_due(snapshot):
            return
        values = {name: getattr(snapshot, name) for name in _SAVED_VALUES}
        reported = [event._asdict() for event in self._reported]
        extra = {"identity": self._identity, "details": self._details, "snapshot": values, "reported": reported}
        self._checkpoints.save(snapshot.step, _with_best(model, snapshot.best_weights), optimizer, extra)
        self._on_saved(snapshot.step)

    def restore(self, model: nn.Module, optimizer: Optimizer) -> TrainingSnapshot | None:
        """Load the checkpoint into model and optimizer; None when there is none.

        Raises: what `Checkpoints.read_newest` raises; CheckpointError for one of another identity. Nothing of it is
            loaded then.
        """
        found = self._checkpoints.read_newest(lambda text: self._report([MessageEvent(text, "warning")]))
        self._checkpoints.tidy()
        if found is None:
            return None
        event, state = found
        extra = state.extra
        drifts = accept_drift(check_drift(extra, self._identity, self._details), event.step, allowed=self._allow_drift)
        both = _with_best(model, model.state_dict())
        state.load_into(both, optimizer)
        self._report(drifts)
        self.report([MetricEvent(**values) for values in extra["reported"]])
        self._report([MessageEvent(f"goes on after step {event.step:,}")])
        return TrainingSnapshot(event.step, best_weights=both[1].state_dict(), **extra["snapshot"])


def _with_best(model: nn.Module, best_weights: Mapping[str, Tensor]) -> nn.ModuleList:
    """The model, and a copy of it with the best weights."""
    best = copy.deepcopy(model)
    best.load_state_dict(best_weights)
    return nn.ModuleList([model, best])
