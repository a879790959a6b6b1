"""The one way from workers to the driver: an actor that holds events until the driver has recorded them.

Nothing is lost when the driver dies: a checkpoint carries the metrics that the driver had not confirmed by then, and
what comes after the checkpoint is computed again.
"""

import ray

from orchestrator.results import Event


class EventQueue:
    """Events in the order of their arrival; an error among them, a worker's or the driver's, ends the work."""

    def __init__(self) -> None:
        self._events: list[Event | Exception] = []
        self._num_taken = 0
        self._num_confirmed = 0
        self._has_failed = False

    def put(self, event: Event | Exception) -> bool:
        """Leave an event, or the reason why the work must end; returns whether there is such a reason."""
        self._events.append(event)
        self._has_failed |= isinstance(event, Exception)
        return self._has_failed

    def has_failed(self) -> bool:
        """Whether there was an error among the events."""
        return self._has_failed

    def take(self) -> list[Event | Exception]:
        """All events since the last call, which confirms that the ones it returned are recorded."""
        self._num_confirmed = self._num_taken
        events, self._events = self._events, []
        self._num_taken += len(events)
        return events

    def num_put(self) -> int:
        """Number of events that have arrived; the caller's own are among them, since its calls keep their order."""
        return self._num_taken + len(self._events)

    def num_confirmed(self) -> int:
        """Number of events, from the first on, that are recorded."""
        return self._num_confirmed


EventQueueActor = ray.remote(num_cpus=0)(EventQueue)
