"""Queue of the runs on one cluster: a run begins when there is room for it beside the runs before it.

    driver ── ticket, every two seconds ──► keeper, an actor of the cluster ──► may begin, or who is before it

The keeper knows nothing but the tickets that it was given of late: a driver that has died falls out by its silence, and
a keeper that was started again knows all after a moment. Runs at work come first, then by priority, then the oldest.
A later run may begin earlier only where it takes nothing that one before it waits for.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.cluster.processes import ROUNDING

logger = logging.getLogger(__name__)
BEAT_S = 2.0
"""Seconds between two words of a driver."""
SILENT_S = 20.0
"""Seconds of silence after which a driver's run is no longer in the queue."""
_NAME = "run-queue-1"
"""Name of the keeper; another number where it and its drivers would not understand one another."""
_NAMESPACE = "orchestrator"
_ANSWER_S = 10.0
"""Longest wait for the keeper's answer."""
_NUM_UNANSWERED = 30
"""Questions without an answer, a minute of them at least, after which a run begins without the queue: no run waits for
what does not work."""


@dataclass(frozen=True)
class Ticket:
    """A run in the queue, at work or waiting."""

    run_id: str
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
    is_known: bool = True
    """Whether the keeper has answered."""


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
            return Place(ticket.is_at_work or not blocking, blocking)
        for name, amount in ticket.takes.items():
            free[name] = free.get(name, 0.0) - amount
        ahead.append(ticket)
    raise KeyError(run_id)


def waiting_line(place: Place) -> str:
    """Text for a person on whom a run waits for."""
    first = "; ".join(f"run {one.run_id} ({_amounts(one.takes)})" for one in place.ahead[:3])
    more = f" and {len(place.ahead) - 3} more" if len(place.ahead) > 3 else ""
    return f"waiting for {first}{more}, before it in the queue; position {len(place.ahead) + 1}"


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
        before = self._tickets.get(ticket.run_id)
        if before is not None and before[0].is_at_work:  # whose driver has not had the answer
            ticket = before[0]
        self._tickets[ticket.run_id] = ticket, now
        place = place_of(ticket.run_id, [kept for kept, _ in self._tickets.values()], have)
        if not ticket.is_at_work and now < self._listens_until:
            return replace(place, may_begin=False)
        if place.may_begin:
            self._tickets[ticket.run_id] = replace(ticket, is_at_work=True), now
        return place

    def leave(self, run_id: str) -> None:
        """Take a run out."""
        self._tickets.pop(run_id, None)


class RunQueue:
    """Queue of the connected Ray's cluster, for the runs of one driver; a stage has the place of its pipeline.

    Args:
        priority: of these runs.
        ask: `Keeper.ask` of the cluster's keeper.
        leave: `Keeper.leave` of the same.
        resources: what the cluster has in all for runs.
    """

    def __init__(
        self,
        priority: int,
        ask: Callable[[Ticket, Mapping[str, float]], Place],
        leave: Callable[[str], None],
        resources: Callable[[], Mapping[str, float]],
    ) -> None:
        self._priority, self._ask, self._leave, self._resources = priority, ask, leave, resources
        self._has_place = False

    @contextmanager
    def place(
        self,
        run_id: str,
        needs: Mapping[str, float],
        set_queued: Callable[[bool], None],
        grows_to: Mapping[str, float] | None = None,
        pause_s: float = BEAT_S,
    ) -> Iterator[None]:
        """Wait until a run may begin, and keep its place until the end of the block.

        Args:
            needs: resources that it cannot begin without.
            grows_to: resources that it takes where there is room; what it needs when left out.
            set_queued: told when the run begins to wait, and when it no longer does.
        """
        if self._has_place:
            yield
            return
        ticket = Ticket(run_id, dict(needs), time.time(), self._priority, grows_to=grows_to)
        try:
            self._wait(ticket, set_queued, pause_s)
            self._has_place = True
            with self._beating(replace(ticket, is_at_work=True), pause_s):
                yield
        finally:
            self._has_place = False
            with suppress(Exception):  # a head that has gone; silence says the same
                self._leave(run_id)

    def _wait(self, ticket: Ticket, set_queued: Callable[[bool], None], pause_s: float) -> None:
        said, num_unanswered = "", 0
        while not (place := self._turn_of(ticket)).may_begin:
            num_unanswered = 0 if place.is_known else num_unanswered + 1
            if num_unanswered == _NUM_UNANSWERED:
                logger.warning("the cluster's queue does not answer; the run begins without it")
                break
            line = waiting_line(place) if place.ahead else "waiting for the cluster's queue"
            if not said:
                set_queued(True)
            if line != said:
                logger.info(line)
            said = line
            time.sleep(pause_s)
        if said:
            logger.info("the run begins")
            set_queued(False)

    def _turn_of(self, ticket: Ticket) -> Place:
        """Ask the keeper; a head that is away for a while ends nobody's waiting, whatever Ray raises then."""
        try:
            return self._ask(ticket, self._resources())
        except Exception:
            return Place(may_begin=False, is_known=False)

    @contextmanager
    def _beating(self, ticket: Ticket, pause_s: float) -> Iterator[None]:
        """Say from a thread that the run is at work; a word that does not arrive is said again."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(pause_s):
                with suppress(Exception):  # the head may be gone for a while: who watches it ends the run
                    self._ask(ticket, {})

        thread = threading.Thread(target=beat, name="run-queue", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(_ANSWER_S)  # a word that arrives after the last one would keep the place


def connected_queue(priority: int = 0) -> RunQueue:
    """Queue of the connected Ray's cluster; its keeper is started where there is none."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from orchestrator.cluster.node_types import resources_of_runs

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    keepers: Any = ray.remote(RunQueueKeeper).options(
        name=_NAME,
        namespace=_NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        max_restarts=-1,
        num_cpus=0,
        scheduling_strategy=here,
    )

    def ask(ticket: Ticket, have: Mapping[str, float]) -> Place:
        place: Place = ray.get(keepers.remote().ask.remote(ticket, dict(have)), timeout=_ANSWER_S)
        return place

    def leave(run_id: str) -> None:
        ray.get(keepers.remote().leave.remote(run_id), timeout=_ANSWER_S)

    return RunQueue(priority, ask, leave, resources_of_runs)


class RunQueueKeeper(Keeper):
    """Keeper as an actor of the cluster. It outlives the drivers that use it, and takes no resources."""

    def __init__(self) -> None:
        import ray

        super().__init__(ray.get_runtime_context().was_current_actor_reconstructed)


def _amounts(taken: Mapping[str, float]) -> str:
    """Text of the GPUs of these, or of the CPUs where there are none."""
    name = "GPU" if taken.get("GPU") else "CPU"
    amount = taken.get(name, 0.0)
    return f"{amount:g} {name}{'' if amount == 1 else 's'}"
