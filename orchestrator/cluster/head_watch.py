"""Watch over a cluster's head: a run whose head has gone ends with a word, before Ray ends the driver without one.

Ray ends a driver that has not reached the head's global control store (GCS) for a minute, by the exit of its process:
nothing after that is recorded.
"""

import logging
import socket
import time
from collections.abc import Callable

from orchestrator.errors import ClusterError

INTERVAL_S = 5.0
PATIENCE_S = 35.0
"""Time without an answer after which the run ends; what is left of Ray's minute is for recording that."""
_ANSWER_TIMEOUT_S = 2.0
logger = logging.getLogger(__name__)


class HeadWatch:
    """Watch over the head at an address, `HOST:PORT`; one that this process cannot reach from the start is not watched.

    Args:
        how_to_go_on: the last words of the error.
    """

    def __init__(
        self,
        address: str,
        how_to_go_on: str,
        answers: Callable[[str], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address, self._how_to_go_on, self._clock = address, how_to_go_on, clock
        self._answers = answers or _answers
        self._answered_at = self._asked_at = clock()
        self._is_watched = self._answers(address)

    def look(self) -> None:
        """Ask the head now and then whether it is there. Raises: ClusterError when it has been silent for too long."""
        now = self._clock()
        if not self._is_watched or now - self._asked_at < INTERVAL_S:
            return
        self._asked_at = now
        if self._answers(self._address):
            self._answered_at = now
            return
        silent_s = now - self._answered_at
        if silent_s < PATIENCE_S:
            logger.warning(f"the cluster's head at {self._address} has not answered for {silent_s:.0f} s")
            return
        raise ClusterError(
            f"the cluster's head at {self._address} has not answered for {silent_s:.0f} s: its GCS has ended, or the "
            f"way there is cut; start it again (`ray up`, or `ray start --head`), then {self._how_to_go_on}"
        )


def watch_head(how_to_go_on: str) -> HeadWatch:
    """A watch over the head of the connected Ray."""
    import ray

    return HeadWatch(ray.get_runtime_context().gcs_address, how_to_go_on)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True
