"""Queue of the runs on one cluster: a run begins when there is room for it beside the runs before it.

    driver ── ticket, every two seconds ──► keeper, an actor of the cluster ──► may begin, or who is before it

Who is before whom is decided by `queue_places`.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from orchestrator.cluster.queue_places import BEAT_S, Keeper, Place, Ticket, waiting_line
from orchestrator.errors import superseded
from orchestrator.repeating import repeating

logger = logging.getLogger(__name__)
_NAME = "run-queue-2"
"""Name of the keeper; another number where it and its drivers would not understand one another."""
_NAMESPACE = "orchestrator"
_ANSWER_S = 10.0
"""Longest wait for the keeper's answer."""
_NUM_UNANSWERED = 30
"""Questions without an answer, a minute of them at least, after which a run begins without the queue: no run waits for
what does not work."""


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
        leave: Callable[[str, int], None],
        resources: Callable[[], Mapping[str, float]],
    ) -> None:
        self._priority, self._ask, self._leave, self._resources = priority, ask, leave, resources
        self._has_place = False

    @contextmanager
    def place(
        self,
        run_id: str,
        attempt: int,
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

        Raises: RunStoppedError where a later attempt of the run has asked for its place.
        """
        if self._has_place:
            yield
            return
        ticket = Ticket(run_id, attempt, dict(needs), time.time(), self._priority, grows_to=grows_to)
        try:
            self._wait(ticket, set_queued, pause_s)
            self._has_place = True
            with self._beating(replace(ticket, is_at_work=True), pause_s):
                yield
        finally:
            self._has_place = False
            with suppress(Exception):  # a head that has gone; silence says the same
                self._leave(run_id, attempt)

    def _wait(self, ticket: Ticket, set_queued: Callable[[bool], None], pause_s: float) -> None:
        said, num_unanswered = "", 0
        while not (place := self._turn_of(ticket)).may_begin:
            if place.is_superseded:
                raise superseded(ticket.run_id)
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

        def beat() -> bool:
            with suppress(Exception):  # the head may be gone for a while: who watches it ends the run
                self._ask(ticket, {})
            return True

        # A word that arrives after the last one would keep the place, so the last beat is waited for.
        with repeating(beat, pause_s, "run-queue", join_timeout_s=_ANSWER_S):
            yield


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

    def leave(run_id: str, attempt: int) -> None:
        ray.get(keepers.remote().leave.remote(run_id, attempt), timeout=_ANSWER_S)

    return RunQueue(priority, ask, leave, resources_of_runs)


class RunQueueKeeper(Keeper):
    """Keeper as an actor of the cluster. It outlives the drivers that use it, and takes no resources."""

    def __init__(self) -> None:
        import ray

        super().__init__(ray.get_runtime_context().was_current_actor_reconstructed)
