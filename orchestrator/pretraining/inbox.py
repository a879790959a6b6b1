"""The one way from workers to the driver: an actor that holds events until the driver has recorded them.

Nothing is lost when the driver dies: a checkpoint carries the metrics that the driver had not confirmed by then, and
what comes after the checkpoint is computed again.
"""

import ray

from orchestrator.results import Event


class Inbox:
    """Events in the order of their arrival; an error among them is why the work cannot go on."""

    def __init__(self) -> None:
        self._events: list[Event | Exception] = []
        self._num_taken = 0
        self._num_confirmed = 0

    def put(self, event: Event | Exception) -> None:
        """Leave an event."""
        self._events.append(event)

    def take(self) -> list[Event | Exception]:
        """All events since the last call, which confirms that the ones it returned are recorded."""
        self._num_confirmed = self._num_taken
        events, self._events = self._events, []
        self._num_taken += len(events)
        return events

    def num_put(self) -> int:
        """How many events have arrived."""
        return self._num_taken + len(self._events)

    def num_confirmed(self) -> int:
        """How many events, from the first on, are recorded."""
        return self._num_confirmed

    def flush(self) -> None:
        """Returns when every event its caller put before is here: calls of one caller arrive in order."""


InboxActor = ray.remote(num_cpus=0)(Inbox)
