"""Events of one worker's training: told by rank 0 alone, measurements kept until they are recorded."""

import threading
from collections.abc import Callable

from orchestrator.pretraining.job import Emit
from orchestrator.results import Event, MessageEvent, MetricEvent


class WorkerEvents:
    """Events of a worker, on their way to the registry. Workers other than rank 0 tell nothing.

    Args:
        emit_to: takes each event; where the feed's thread warns, from that thread.
        num_confirmed: returns how many of the emitted events, from the first on, are recorded.
    """

    def __init__(self, rank: int, emit_to: Emit, num_confirmed: Callable[[], int]) -> None:
        self._rank, self._emit_to, self._num_confirmed = rank, emit_to, num_confirmed
        self._num_emitted = 0
        self._unconfirmed: list[tuple[int, MetricEvent]] = []
        self._emitting = threading.Lock()
        """Lock of `_num_emitted` and `_unconfirmed`: more than one thread emits."""

    def emit(self, event: Event) -> None:
        """Emit an event, from any thread."""
        if self._rank != 0:
            return
        with self._emitting:
            if isinstance(event, MetricEvent):
                self._unconfirmed.append((self._num_emitted, event))
            self._num_emitted += 1
            self._emit_to(event)

    def tell(self, text: str) -> None:
        """Tell a message."""
        self.emit(MessageEvent(text))

    def warn(self, text: str) -> None:
        """Tell a warning, from any thread."""
        self.emit(MessageEvent(text, "warning"))

    def unconfirmed(self) -> list[MetricEvent]:
        """Measurements that may not be recorded yet. A checkpoint carries them: none is lost with the driver."""
        confirmed = self._num_confirmed()
        with self._emitting:
            self._unconfirmed = [(number, event) for number, event in self._unconfirmed if number >= confirmed]
            return [event for _, event in self._unconfirmed]

    def forget_unconfirmed(self) -> None:
        """Forget measurements that may not be recorded yet, where a checkpoint has them or they will come again."""
        with self._emitting:
            self._unconfirmed.clear()
