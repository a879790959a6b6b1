"""States of runs, trials and attempts, and which state may follow which.

    PENDING    recorded, not started yet
    RUNNING    an attempt is at work
    COMPLETED  ended with its result; no other state follows, unless a sweep is given more points and so is STOPPED
    FAILED     ended by an error; may run again, and a result that arrives late still makes it COMPLETED, a trial PRUNED
    STOPPED    ended on request; otherwise like FAILED
    PRUNED     a trial that its scheduler ended early; only a result that arrives late changes it
    LOST       the driver fell silent

LOST is never stored for a run: a running run reads so where its last heartbeat is too old. LOST is stored for an
attempt, when the next attempt of the same run starts before it has ended.
"""

from enum import StrEnum


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
        """Whether the run has ended."""
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
