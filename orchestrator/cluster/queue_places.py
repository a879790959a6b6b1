"""Places of the runs on one cluster in its queue, and the keeper of them; no Ray.

Runs at work come first, then by priority, then the oldest. A later run may begin earlier only where it takes nothing
that one before it waits for. The keeper knows nothing but the tickets that it was given of late: a driver that has died
falls out by its silence, and a keeper that was started again knows all after a moment.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from orchestrator.cluster.processes import ROUNDING
from orchestrator.progress import counted

BEAT_S = 2.0
"""Seconds between two words of a driver."""
SILENT_S = 20.0
"""Seconds of silence after which a driver's run is no longer in the queue."""


@dataclass(frozen=True)
class Ticket:
    """A run in the queue, at work or waiting."""

    run_id: str
    attempt: int
    """Number of the run's attempt that asks: a later one takes the place of an earlier one."""
    needs: Mapping[str, float]
    """Resources that it cannot begin without, by Ray's names."""
    asked_at: float
    """Time at which its driver asked for a place, in seconds since 1970."""
    priority: int = 0
    """Higher ones begin first."""
    is_at_work: bool = False
    grows_to: Mapping[str, float] | None = None
    """Resources that it takes where there is room; what it needs when left out."""

    @property
    def takes(self) -> Mapping[str, float]:
        """Resources that are not there for the runs behind it."""
        return self.needs if self.grows_to is None else self.grows_to


@dataclass(frozen=True)
class Place:
    """Place of a run in the queue."""

    may_begin: bool
    ahead: tuple[Ticket, ...] = ()
    """Runs before it that take or wait for what it lacks."""
    position: int = 1
    """Number of the run among those that wait, in the order of the queue."""
    is_known: bool = True
    """Whether the keeper has answered."""
    is_superseded: bool = False
    """Whether a later attempt of the run has asked."""


def place_of(run_id: str, tickets: Collection[Ticket], have: Mapping[str, float]) -> Place:
    """Find the place of a run among all tickets.

    A run that nobody is before may begin however much it takes: what a cluster has grows when somebody asks.

    Args:
        have: resources of the cluster in all.
    """
    free, ahead = dict(have), list[Ticket]()
    for ticket in sorted(tickets, key=lambda one: (not one.is_at_work, -one.priority, one.asked_at, one.run_id)):
        short = {name for name, amount in ticket.needs.items() if amount > free.get(name, 0.0) + ROUNDING}
        if ticket.run_id == run_id:
            blocking = tuple(one for one in ahead if any(one.takes.get(name) for name in short))
            position = 1 + sum(not one.is_at_work for one in ahead)
            return Place(ticket.is_at_work or not blocking, blocking, position)
        for name, amount in ticket.takes.items():
            free[name] = free.get(name, 0.0) - amount
        ahead.append(ticket)
    raise KeyError(run_id)


def waiting_line(place: Place) -> str:
    """Text for a person on whom a run waits for."""
    first = "; ".join(f"run {one.run_id} ({_amounts(one.takes)})" for one in place.ahead[:3])
    more = f" and {len(place.ahead) - 3} more" if len(place.ahead) > 3 else ""
    return f"waiting for {first}{more}, before it in the queue; position {place.position}"


class Keeper:
    """Keeper of the queue's tickets.

    Args:
        knows_nothing: whether it was started in the place of one that has died: who is at work will say so in a moment.
    """

    def __init__(self, knows_nothing: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tickets: dict[str, tuple[Ticket, float]] = {}
        """Tickets by their run, and when each was last heard of."""
        self._listens_until = clock() + 2 * BEAT_S if knows_nothing else clock()

    def ask(self, ticket: Ticket, have: Mapping[str, float]) -> Place:
        """Take a driver's word for its run; a run that may begin is at work from now on."""
        now = self._clock()
        self._tickets = {key: kept for key, kept in self._tickets.items() if now - kept[1] < SILENT_S}
        before = self._ticket(ticket.run_id)
        if before is not None and before.attempt > ticket.attempt:
            return Place(may_begin=False, is_superseded=True)
        if before is not None and before.attempt == ticket.attempt and before.is_at_work:
            ticket = before  # whose driver has not had the answer
        self._tickets[ticket.run_id] = ticket, now
        place = place_of(ticket.run_id, [kept for kept, _ in self._tickets.values()], have)
        if not ticket.is_at_work and now < self._listens_until:
            return replace(place, may_begin=False)
        if place.may_begin:
            self._tickets[ticket.run_id] = replace(ticket, is_at_work=True), now
        return place

    def leave(self, run_id: str, attempt: int) -> None:
        """Take a run out, unless a later attempt has its place by now."""
        ticket = self._ticket(run_id)
        if ticket is not None and ticket.attempt == attempt:
            del self._tickets[run_id]

    def _ticket(self, run_id: str) -> Ticket | None:
        return self._tickets[run_id][0] if run_id in self._tickets else None


def _amounts(taken: Mapping[str, float]) -> str:
    """Text of the GPUs of these, or of the CPUs where there are none."""
    name = "GPU" if taken.get("GPU") else "CPU"
    return counted(float(taken.get(name, 0)), name)
