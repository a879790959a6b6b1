"""Time of a command on a cluster's head: it ends unless it is renewed, as who asked may be gone without a word."""

import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from orchestrator.errors import ClusterError
from orchestrator.execution.job_client import ROLE_OF_COMMANDS, Jobs
from orchestrator.repeating import repeating

LEASE_S = 120.0
"""Time after which a command is ended where nothing is heard from here."""
_RENEWALS = 3
"""Number of times that the time is renewed before it would be over."""


@contextmanager
def renewed(jobs: Jobs, lease: str, interval_s: float = LEASE_S / _RENEWALS) -> Iterator[None]:
    """Renew a command's time until the end of the block, each time by a small job on the head.

    Args:
        lease: the file there that is touched.
    """
    jobs_of_before: list[str] = []
    renewal = {"job_name": "a command goes on", "role": ROLE_OF_COMMANDS}

    def renew() -> bool:
        with suppress(ClusterError):  # who reads the command's log sees what is wrong, and says so
            jobs_of_before.append(f"command-{secrets.token_hex(6)}")
            jobs.submit(jobs_of_before[-1], f"touch -c {shlex.quote(lease)}", {}, renewal)
            if len(jobs_of_before) > 1:
                jobs.delete(jobs_of_before.pop(0))
        return True

    with repeating(renew, interval_s, "lease", join_timeout_s=0.0):  # a request may wait for the head
        yield
