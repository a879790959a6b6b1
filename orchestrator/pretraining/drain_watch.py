"""Watch over nodes that are about to be taken away: training workers on one save a checkpoint, and leave in time.

Ray calls such a node draining: `ray drain-node`, or whatever hears that a cloud takes a spot machine back, says so to
the cluster, and until when the node stays. Ray places nothing new there.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import ray

from orchestrator.cluster.nodes import draining_nodes
from orchestrator.progress import duration
from orchestrator.training.event_queue import WorkersStatus

LOOK_EVERY_S = 1.0
logger = logging.getLogger(__name__)


class DrainWatch:
    """Watch over the nodes of one group of workers, which is asked to stop where one of them is drained.

    Args:
        event_queue: the actor by which the workers learn of it.
        find_draining: returns the nodes that are drained by id, with the Unix time in ms at which they go, or 0.
        now: Unix time in seconds.
    """

    has_asked = False
    """Whether the workers were asked to leave."""

    def __init__(
        self,
        event_queue: Any,
        find_draining: Callable[[], Mapping[str, int]] = draining_nodes,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._event_queue, self._find_draining, self._now = event_queue, find_draining, now
        self._looked_at = 0.0

    def look(self) -> None:
        """Ask the workers to save a checkpoint and to leave where one of their nodes is drained."""
        if self.has_asked or self._now() - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = self._now()
        draining = self._find_draining()
        if not draining:
            return
        status: WorkersStatus = ray.get(self._event_queue.status.remote())
        leaving = {place.host: draining[place.node_id] for place in status.places if place.node_id in draining}
        if not leaving:
            return
        for host, deadline_ms in leaving.items():
            left = f" ({duration(max(0.0, deadline_ms / 1000 - self._now()))} left)" if deadline_ms else ""
            logger.warning(
                f"node {host} is being drained{left}: a checkpoint after this step, then a new group of workers"
            )
        ray.get(self._event_queue.stop.remote())
        self.has_asked = True
