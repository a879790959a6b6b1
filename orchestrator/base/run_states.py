"""States of runs and their transitions; ids and names of runs.

    PENDING    recorded, not started yet
    RUNNING    an attempt is at work
    COMPLETED  ended with its result; no other state follows, unless a sweep is given more points and so is STOPPED
    FAILED     ended by an error; may run again, and a result that arrives late still makes it COMPLETED, a trial PRUNED
    STOPPED    ended on request; otherwise like FAILED
    PRUNED     a trial that its scheduler ended early; only a result that arrives late changes it
    LOST       the driver fell silent

LOST is never stored for a run: a running run reads so where its last heartbeat is older than `LOST_AFTER_S`. LOST is
stored for an attempt, when the next attempt of the same run starts before it has ended. An id is drawn where a run is
asked for; the job that carries it out on a cluster is called the same.
"""

import re
from enum import StrEnum
from uuid import uuid4

HEARTBEAT_INTERVAL_S = 10.0
"""Time between two heartbeats of a driver, by which others know that it lives."""
LOST_AFTER_S = 60.0
"""Age of the last heartbeat of a running run from which on its driver counts as lost."""
_RUN_ID = re.compile("[0-9a-f]{12}")


class RunState(StrEnum):
    """State of a run, a trial or an attempt; as text it is its name, which is what the registry stores."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    PRUNED = "PRUNED"
    LOST = "LOST"

    @property
    def is_final(self) -> bool:
        return self in _FINAL

    @property
    def is_derived(self) -> bool:
        """Whether the state of a run is only read as this one, and never stored."""
        return self is RunState.LOST

    @property
    def has_driver(self) -> bool:
        """Whether a process carries the run out."""
        return self is RunState.RUNNING

    def may_become(self, other: "RunState") -> bool:
        """Whether a run or trial in this state may be put into the `other` one; RUNNING again is a new attempt."""
        return other in _SUCCESSORS[self]


_FINAL = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.STOPPED, RunState.PRUNED})
_SUCCESSORS: dict[RunState, frozenset[RunState]] = {
    RunState.PENDING: _FINAL | {RunState.RUNNING},
    RunState.RUNNING: _FINAL | {RunState.RUNNING},
    RunState.COMPLETED: frozenset(),
    RunState.FAILED: frozenset({RunState.RUNNING, RunState.COMPLETED, RunState.PRUNED}),
    RunState.STOPPED: frozenset({RunState.RUNNING, RunState.COMPLETED, RunState.PRUNED}),
    RunState.PRUNED: frozenset({RunState.COMPLETED}),
    RunState.LOST: _FINAL | {RunState.RUNNING},
}


def new_run_id() -> str:
    return uuid4().hex[:12]


def is_run_id(text: str) -> bool:
    """Whether a text is the whole id of a run; the beginning of one is not.

    >>> is_run_id("7f3a90b1c2d4"), is_run_id("7f3a"), is_run_id("7F3A90B1C2D4")
    (True, False, False)
    """
    return _RUN_ID.fullmatch(text) is not None


def check_name(name: str) -> str:
    """Return the name of a run. Raises: ValueError where commands would take it for a path or an option."""
    if name[:1] in ("", ".", "/", "~", "-") or name != name.strip():
        raise ValueError(
            f"{name!r} cannot be a run's name, by which commands find it: it has no blanks at its ends, and does not "
            "begin with . / ~ or -"
        )
    return name
