"""The one way from workers to the driver: an actor that holds events until the driver takes them.

What the driver has not taken when it dies is not lost: metrics since the last checkpoint are computed again, those
before it travel in the checkpoint.
"""

import ray

from orchestrator.results import Event


class Inbox:
    """Events in the order of their arrival; an error among them is why the work cannot go on."""

    def __init__(self) -> None:
        self._events: list[Event | Exception] = []

    def put(self, event: Event | Exception) -> None:
        """Leave an event."""
        self._events.append(event)

    def take(self) -> list[Event | Exception]:
        """All events since the last call."""
        events, self._events = self._events, []
        return events

    def flush(self) -> None:
        """Returns when every event its caller put before is here: calls of one caller arrive in order."""


InboxActor = ray.remote(num_cpus=0)(Inbox)
