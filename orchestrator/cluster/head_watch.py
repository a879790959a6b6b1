"""Watch over a cluster's head, while a run depends on it.

Ray ends a driver that has not reached the head's global control store (GCS) for a minute, by the exit of its process:
nothing after that is recorded. So a run whose head has gone ends before that, with an error that is recorded.
"""

import time
from collections.abc import Callable

from orchestrator.base.errors import ClusterError
from orchestrator.cluster.capacity import answers

INTERVAL_S = 5.0
PATIENCE_S = 35.0
"""Time without an answer after which the run ends; what is left of Ray's minute is for recording that."""
LAST_PATIENCE_S = 42.0
"""Time after which the driver leaves where it stands: what it waits for within Ray can be interrupted by nothing."""
_ANSWER_TIMEOUT_S = 2.0


def _head_answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and answers(host, int(port), _ANSWER_TIMEOUT_S)


class HeadWatch:
    """Watch over the head at an address, `HOST:PORT`; one that this process cannot reach from the start is not watched.

    Args:
        how_to_go_on: the last words of the error.
        patience_s: time without an answer that is borne.
    """

    silent_s = 0.0
    """Time for which the head has not answered, as of the last look that asked it."""

    def __init__(
        self,
        address: str,
        how_to_go_on: str,
        answers: Callable[[str], bool] = _head_answers,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._address, self._how_to_go_on, self._answers = address, how_to_go_on, answers
        self._clock, self._patience_s = clock, patience_s
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
        self.silent_s = now - self._answered_at
        if self.silent_s >= self._patience_s:
            raise ClusterError(
                f"{self.problem()}: its GCS has ended, or the way there is cut; "
                f"start it again (`ray up`, or `ray start --head`), then {self._how_to_go_on}"
            )

    def problem(self) -> str:
        """Return which head has not answered, and for how long."""
        return f"the cluster's head at {self._address} has not answered for {self.silent_s:.0f} s"


def watch_head(how_to_go_on: str, patience_s: float = PATIENCE_S) -> HeadWatch:
    """A watch over the head of the connected Ray; where none is connected there is nothing to watch."""
    import ray

    address = ray.get_runtime_context().gcs_address if ray.is_initialized() else ""
    return HeadWatch(address, how_to_go_on, patience_s=patience_s)
