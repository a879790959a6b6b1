"""Attempts that one driver has begun: their numbers, the time that each has spent, and their heartbeats."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from orchestrator.errors import RegistryError
from orchestrator.provenance.machine import MadeWith
from orchestrator.registry.patience import retry_while_unavailable
from orchestrator.registry.runs.lifecycle import RunLifecycle
from orchestrator.repeating import repeating

HEARTBEAT_INTERVAL_S = 10.0


class OwnAttempts:
    """Attempts of this process, one for each run. Of a run that it has not begun nothing is known here.

    Time is counted by a clock that never jumps.
    """

    def __init__(self, lifecycle: RunLifecycle) -> None:
        self._lifecycle = lifecycle
        self._numbers: dict[str, int] = {}
        self._began_at: dict[str, float] = {}

    def begin(self, run_id: str, number: int, job_id: str | None, made_with: MadeWith | None) -> None:
        """Begin an attempt, however long the registry takes to answer.

        Raises: NotFoundError; InputError where the run has completed, or another process has just begun that attempt.
        """
        self._began_at[run_id] = time.monotonic()
        self._numbers[run_id] = retry_while_unavailable(
            lambda: self._lifecycle.start_attempt(
                run_id,
                number=number,
                host=socket.gethostname(),
                pid=os.getpid(),
                job_id=job_id,
                made_with=made_with,
            )
        )

    def number(self, run_id: str) -> int | None:
        """Number of this process's attempt at a run; None where there is none."""
        return self._numbers.get(run_id)

    def ending(self, run_id: str) -> dict[str, Any]:
        """Number and duration of this process's attempt at a run, as `RunLifecycle.finish` takes them."""
        if run_id not in self._numbers:
            return {}
        return {"attempt": self._numbers[run_id], "seconds": time.monotonic() - self._began_at[run_id]}

    @contextmanager
    def heartbeating(self, run_id: str, interval_s: float) -> Iterator[threading.Event]:
        """Say from a thread that a run is alive, until the end of the block.

        Yields an event that is set when a newer attempt has superseded this one. A registry that cannot be reached is
        tried again at the next beat.
        """
        superseded, attempt = threading.Event(), self.number(run_id)

        def beat() -> bool:
            with suppress(RegistryError):
                if not self._lifecycle.heartbeat(run_id, attempt):
                    superseded.set()
            return not superseded.is_set()

        with repeating(beat, interval_s, f"heartbeat-{run_id}"):
            yield superseded
