"""Event queue between workers and their driver: an actor that keeps events until the driver has recorded them.

Nothing is lost when the driver dies: a checkpoint carries the metrics that the driver had not confirmed by then, and
what comes after the checkpoint is computed again.
"""

from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.base.results import Event


@dataclass(frozen=True)
class WorkerPlace:
    """Rank and address of a worker that has begun, in a group of `num_workers`."""

    rank: int
    host: str
    pid: int
    num_workers: int = 1


@dataclass(frozen=True)
class WorkerFailure:
    """Failure of a worker, after which Ray starts all workers again or gives up."""

    rank: int
    cause: str
    host: str = "an unknown host"

    def __str__(self) -> str:
        return f"training worker {self.rank} on {self.host} failed: {self.cause}"


@dataclass(frozen=True)
class WorkersStatus:
    """State of the workers: those of the newest group that have begun, and all failures of this attempt."""

    places: tuple[WorkerPlace, ...] = ()
    step: int | None = None
    """Number of steps that have ended; None before the first one of these workers."""
    failures: tuple[WorkerFailure, ...] = ()


@dataclass(frozen=True)
class QueueState:
    """State of an event queue for its workers: recorded events, a request to stop, an error that ends the work."""

    num_confirmed: int = 0
    is_stopping: bool = False
    has_failed: bool = False


class EventQueue:
    """Events in the order of their arrival; an error among them, a worker's or the driver's, ends the work."""

    def __init__(self) -> None:
        self._events: list[Event | Exception] = []
        self._num_confirmed = 0
        self._has_failed = False
        self._is_stopping = False
        self._places: dict[int, WorkerPlace] = {}
        self._may_group_work = True
        self._step: int | None = None
        self._failures: list[WorkerFailure] = []
        self._selector: dict[str, str] = {}

    def put(self, event: Event | Exception) -> None:
        """Leave an event, or the reason why the work must end."""
        self._events.append(event)
        self._has_failed |= isinstance(event, Exception)

    def take(self, num_recorded: int) -> list[Event | Exception]:
        """All events but the first `num_recorded`, which are confirmed to be recorded and are forgotten here.

        Asking again with the same number gives the same events again: a driver that was interrupted loses none.
        """
        del self._events[: max(0, num_recorded - self._num_confirmed)]
        self._num_confirmed = max(num_recorded, self._num_confirmed)
        return list(self._events)

    def num_put(self) -> int:
        """Number of events that have arrived; the caller's own are among them, since its calls keep their order."""
        return self._num_confirmed + len(self._events)

    def stop(self) -> None:
        """Ask the workers to save a checkpoint as soon as they can, and to end."""
        self._is_stopping = True

    def is_stopping(self) -> bool:
        return self._is_stopping

    def place_workers(self, selector: dict[str, str]) -> None:
        """Begin a new group of workers, on nodes with these labels; those of the group before have ended."""
        self._selector = selector
        self._forget_group()

    def selector(self) -> dict[str, str]:
        """Labels of the nodes of the newest group."""
        return self._selector

    def begin(self, place: WorkerPlace) -> bool:
        """Announce a worker; returns whether it may work: there has been neither an error nor a request to stop.

        The answer is the same for a whole group, whose workers wait for each other.
        """
        if place.rank in self._places:  # nobody has reported that it ended
            self.report_failure(place.rank, "its process was killed or crashed")
        if not self._places:
            self._may_group_work = not self._is_stopping
        self._places[place.rank] = place
        self._step = None
        return self._may_group_work and not self._has_failed

    def report_step(self, step: int | None) -> QueueState:
        """Take down how many steps have ended, None before the first."""
        self._step = step
        return QueueState(self._num_confirmed, self._is_stopping, self._has_failed)

    def report_failure(self, rank: int, cause: str) -> None:
        """Record that a worker has failed; all of them begin again, or the work ends."""
        host = {"host": self._places[rank].host} if rank in self._places else {}
        self._failures.append(WorkerFailure(rank, cause, **host))
        self._forget_group()

    def _forget_group(self) -> None:
        self._places.clear()
        self._step = None

    def status(self) -> WorkersStatus:
        places = tuple(self._places[rank] for rank in sorted(self._places))
        return WorkersStatus(places, self._step, tuple(self._failures))


_EventQueueActor = ray.remote(num_cpus=0)(EventQueue)


def launch_event_queue() -> Any:
    """Start an event queue as an actor on the driver's node, where it stays: another node may be lost."""
    here = ray.get_runtime_context().get_node_id()
    return _EventQueueActor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False)).remote()
