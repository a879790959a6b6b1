"""Clocks of a training: marks, and the seconds between two of them, as the work on a device saw them."""

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Marks in the course of a worker's work."""

    def mark(self) -> Any:
        """Mark where the work has come to, without waiting for it."""

    def seconds_between(self, first: Any, last: Any) -> float:
        """Return the seconds from one mark to another; waits until the work has come to both."""

    def wait(self) -> None:
        """Wait until all work so far is done."""


class HostClock:
    """Time of the host, which on a CPU does all work itself."""

    def mark(self) -> float:
        """Return the time."""
        return time.perf_counter()

    def seconds_between(self, first: float, last: float) -> float:
        """Return the seconds from one mark to another."""
        return last - first

    def wait(self) -> None:
        """Do nothing: what the host has come by is done."""


class DeviceClock:
    """Time of a CUDA device's stream. The host is ahead of it: what the host waits for may hold up nothing there.

    Between two marks with no work between them the device stood still, for as long as the host took to the second mark
    after the device had come to the first.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> torch.cuda.Event:
        """Put a mark in line behind all work of the current stream."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds_between(self, first: torch.cuda.Event, last: torch.cuda.Event) -> float:
        """Return the seconds from one mark to another."""
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000

    def wait(self) -> None:
        """Wait until the device has done all work of the current stream."""
        self.mark().synchronize()


def clock_of(device: torch.device) -> Clock:
    """Make the clock of a device."""
    return DeviceClock(device) if device.type == "cuda" else HostClock()
