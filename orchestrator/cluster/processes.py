"""Processes that a run has at the same time, and what each of them needs. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

ROUNDING = 1e-9
"""Tolerance for sums of fractions of a CPU."""


@dataclass(frozen=True)
class Processes:
    """Processes that run at the same time."""

    count: int
    resources: Mapping[str, float]
    """Resources that each process needs on the one node that it runs on, by Ray's names."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Selector of the labels of the nodes that they may be on."""


def room_on(node: Mapping[str, float], resources: Mapping[str, float]) -> int:
    """Number of processes with these resources that a node holds."""
    return min(int(node.get(name, 0.0) / count + ROUNDING) for name, count in resources.items() if count)
