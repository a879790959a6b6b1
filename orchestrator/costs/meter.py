"""Meter of one attempt at a run: what it has taken so far, measured where it can be, else by what it holds."""

import time
from typing import Protocol

from orchestrator.costs.energy import Energy
from orchestrator.costs.held import times_held
from orchestrator.costs.processor_time import ProcessorTime
from orchestrator.kinds.base import Resources
from orchestrator.registry.records import AttemptCostRecord
from orchestrator.registry.registry import Registry


class Clock(Protocol):
    """A clock that never jumps, in seconds."""

    def __call__(self) -> float: ...


class Meter:
    """Meters an attempt from now on.

    A sweep holds what its trials hold, while they run. Where the number of workers follows the cluster, what is held
    follows it too.

    Args:
        held: resources of the run on the connected Ray; of a sweep those of one trial.
        gpu_type: what the cluster calls its GPUs.
        processor_time: of this process and those below it; None where the work is on other hosts, or below a Ray that
            somebody else has started: processor time is derived then.
        energy: of this host.
    """

    def __init__(
        self,
        registry: Registry,
        run_id: str,
        number: int,
        held: Resources,
        *,
        gpu_type: str | None = None,
        processor_time: ProcessorTime | None = None,
        energy: Energy | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._registry, self._run_id, self._number = registry, run_id, number
        self._held, self._gpu_type = held, gpu_type
        self._processor_time, self._energy, self._clock = processor_time, energy, clock
        self._begun_at = self._looked_at = clock()
        self._joules: float | None = None
        self._held_seconds = 0.0
        """Seconds, each counted as often as what `held` says was held."""
        self._times_held = 1.0

    def look(self) -> None:
        """Read the counters, so that nothing of what ends, or wraps around, before the next look is missed."""
        now = self._clock()
        self._held_seconds += self._times_held * (now - self._looked_at)
        self._looked_at = now
        if self._energy is not None:
            self._joules = self._energy.joules()
        if self._processor_time is not None:
            self._processor_time.seconds()

    def read(self) -> AttemptCostRecord:
        """Return what the attempt has taken so far. Raises: RegistryError."""
        self._times_held = self._count_times_held()
        self.look()
        trial_seconds = self._registry.costs.trial_seconds(self._run_id, self._number)
        seconds = self._held_seconds if trial_seconds is None else trial_seconds
        is_measured = self._processor_time is not None and self._processor_time.is_measured
        measured = self._processor_time.seconds() if self._processor_time is not None else 0.0
        gpu_seconds = seconds * self._held.total.get("GPU", 0.0)
        return AttemptCostRecord(
            run_id=self._run_id,
            number=self._number,
            seconds=self._clock() - self._begun_at,
            cpu_seconds=measured if is_measured else seconds * self._held.total.get("CPU", 0.0),
            cpu_measured=is_measured,
            gpu_seconds=gpu_seconds,
            gpu_type=self._gpu_type if gpu_seconds else None,
            energy_joules=self._joules,
        )

    def _count_times_held(self) -> float:
        """Count how often `held` is held now: more than once where a range of workers has found room for more."""
        if self._held.up_to == 1.0:
            return 1.0
        attempts = [one for one in self._registry.attempts(self._run_id) if one.number == self._number]
        groups = [group for one in attempts for group in one.workers or ()]
        return times_held(self._held, groups[-1:])
