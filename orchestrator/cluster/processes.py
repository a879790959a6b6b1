"""Processes that a run has at the same time, and what each of them needs. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Processes:
    """Processes that run at the same time."""

    count: int
    resources: Mapping[str, float]
    """Resources that each process needs on the one node that it runs on, by Ray's names."""
