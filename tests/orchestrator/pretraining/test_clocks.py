"""Clocks of a host and of a device, with fake events in place of a GPU's. Alone:
pytest tests/orchestrator/pretraining/test_clocks.py"""

import pytest
import torch

from orchestrator.pretraining.clocks import DeviceClock, HostClock, clock_of


class FakeEvent:
    """An event that is recorded at the number of the stream that it is recorded on, in milliseconds."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.is_over = False

    def record(self, stream: float) -> None:
        self.at_ms = stream

    def synchronize(self) -> None:
        self.is_over = True

    def elapsed_time(self, other: "FakeEvent") -> float:
        assert other.is_over, "only what is over can be compared"
        return other.at_ms - self.at_ms


def test_a_device_s_marks_stand_in_its_stream_and_are_read_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = iter([500.0, 2750.0])
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: next(streams))
    clock = DeviceClock(torch.device("cuda", 0))
    first, last = clock.mark(), clock.mark()
    assert not last.is_over, "a mark waits for nothing"
    assert clock.seconds_between(first, last) == 2.25


def test_a_host_s_marks_are_its_time() -> None:
    clock = clock_of(torch.device("cpu"))
    assert isinstance(clock, HostClock)
    assert clock.seconds_between(1.5, 4.0) == 2.5
    assert clock.mark() <= clock.mark()
