"""Types of the laboratory that the fixtures beside this file make."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """Output of a command, and its exit status."""

    status: int
    out: str
    err: str


Command = Callable[..., Outcome]


@dataclass(frozen=True)
class RecordedSweep:
    """Ids in the registry of `recorded_sweep`."""

    run_id: str
    trial_ids: tuple[str, ...]
