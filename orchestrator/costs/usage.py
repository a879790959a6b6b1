"""Usage of machines by work: processor time, GPU time and energy, each with how it is known."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from orchestrator.progress import counted, duration
from orchestrator.registry.records import AttemptCostRecord

HOUR_S = 3600.0
JOULES_PER_KWH = 3.6e6
UNKNOWN_GPU = "GPU"
"""Type of GPUs of which no type is recorded."""


@dataclass(frozen=True)
class Usage:
    """Time and energy that one run, or several, have taken."""

    seconds: float = 0.0
    """Time that drivers worked, without waiting in queues."""
    measured_cpu_seconds: float = 0.0
    """Processor time that processes reported to have used."""
    derived_cpu_seconds: float = 0.0
    """CPUs that were held, times the seconds: of processes on other hosts, and of attempts that nothing measured."""
    gpu_seconds: Mapping[str, float] = field(default_factory=dict)
    """GPUs that were held, times the seconds, by the type of the GPU."""
    energy_joules: float | None = None
    """Energy of the drivers' hosts meanwhile; None where no counter could be read."""
    num_unknown: int = 0
    """Number of runs of which nothing is recorded, and nothing can be derived."""

    @classmethod
    def of_attempt(cls, cost: AttemptCostRecord) -> Self:
        """Return what is recorded of an attempt."""
        return cls(
            seconds=cost.seconds,
            measured_cpu_seconds=cost.cpu_seconds if cost.cpu_measured else 0.0,
            derived_cpu_seconds=0.0 if cost.cpu_measured else cost.cpu_seconds,
            gpu_seconds={cost.gpu_type or UNKNOWN_GPU: cost.gpu_seconds} if cost.gpu_seconds else {},
            energy_joules=cost.energy_joules,
        )

    @property
    def cpu_seconds(self) -> float:
        """Processor time, measured or derived."""
        return self.measured_cpu_seconds + self.derived_cpu_seconds

    @property
    def all_gpu_seconds(self) -> float:
        """GPU time of all types."""
        return sum(self.gpu_seconds.values())

    @property
    def cpu_source(self) -> str:
        """Text on how the processor time is known: `measured`, `derived`, or how much of it was measured."""
        if not self.derived_cpu_seconds:
            return "measured" if self.measured_cpu_seconds else ""
        if not self.measured_cpu_seconds:
            return "derived"
        return f"{self.measured_cpu_seconds / self.cpu_seconds:.0%} measured"

    def __add__(self, other: "Usage") -> "Usage":
        energies = [each.energy_joules for each in (self, other) if each.energy_joules is not None]
        return Usage(
            self.seconds + other.seconds,
            self.measured_cpu_seconds + other.measured_cpu_seconds,
            self.derived_cpu_seconds + other.derived_cpu_seconds,
            dict(Counter(self.gpu_seconds) + Counter(other.gpu_seconds)),
            sum(energies) if energies else None,
            self.num_unknown + other.num_unknown,
        )

    def __str__(self) -> str:
        """Text for one line: `3:01 h; 5.9 CPU h (measured); 2 H200 h; 0.4 kWh`."""
        if self.num_unknown and not self.seconds:
            return "not recorded"
        return f"{duration(self.seconds)}; {self.held_text()}"

    def held_text(self) -> str:
        """Text of what was held, without the time: `5.9 CPU h (measured); 2 H200 h; 0.4 kWh`."""
        if self.num_unknown and not (self.cpu_source or self.gpu_seconds):
            return "CPU time not recorded"
        parts = [f"{_time_of(self.cpu_seconds, 'CPU')} ({self.cpu_source or 'none'})"]
        parts += [_time_of(seconds, gpu) for gpu, seconds in sorted(self.gpu_seconds.items())]
        if self.energy_joules is not None:
            parts.append(f"{self.energy_joules / JOULES_PER_KWH:.3g} kWh")
        if self.num_unknown:
            parts.append(f"beside {counted(self.num_unknown, 'run')} not recorded")
        return "; ".join(parts)


def _time_of(seconds: float, device: str) -> str:
    """Text of a device's time: in hours, or in seconds where it is less than a hundredth of an hour."""
    if 0 < seconds < HOUR_S / 100:
        return f"{seconds:.2g} {device} s"
    return f"{seconds / HOUR_S:.3g} {device} h"


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Sum of what several runs have taken."""
    return sum(usages, Usage())
