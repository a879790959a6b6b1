"""Clocks of a device: marks in its work, and the seconds between them."""

import time
from typing import Any

import torch


class Clock:
    """Time of a worker's work. On a CPU it is the host's, which does all work itself."""

    def mark(self) -> Any:
        """Mark the end of the work that was asked for, without waiting for it."""
        return time.perf_counter()

    def seconds_between(self, first: Any, last: Any) -> float:
        """Seconds from one mark to another; waits for both."""
        return float(last - first)

    def wait(self) -> None:
        """Wait until the work that was asked for is done."""


class DeviceClock(Clock):
    """Time of a CUDA device's stream. The host is ahead of it: what the host waits for may hold up nothing there.

    Between two marks without work between them the device stood still.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds_between(self, first: torch.cuda.Event, last: torch.cuda.Event) -> float:
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000

    def wait(self) -> None:
        self.mark().synchronize()


def clock_of(device: torch.device) -> Clock:
    return DeviceClock(device) if device.type == "cuda" else Clock()
