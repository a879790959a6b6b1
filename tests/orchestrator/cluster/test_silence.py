"""Warnings of a driver while nothing comes from the cluster; a fake clock, no Ray.

Run alone: pytest tests/orchestrator/cluster/test_silence.py
"""

import threading

import pytest

from orchestrator.cluster import silence as module
from orchestrator.cluster.processes import Processes
from orchestrator.cluster.silence import SilenceWatch, telling_silence
from tests.waiting import PATIENCE_S


def test_silence_is_told_within_a_minute_with_what_is_missing_and_then_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    watch = SilenceWatch("no text has been tokenized", lambda: "needs 1 × {CPU: 1}", lambda: now[0])
    told = []
    for second in range(1, 1000):
        now[0] = float(second)
        caplog.clear()
        watch.look()
        told += [second] * len(caplog.messages)
        if second == 60:
            assert caplog.messages == ["no text has been tokenized for 1:00 min; needs 1 × {CPU: 1}"]
        if second == 440:
            watch.note()
    assert told == [60, 120, 240, 500, 560, 680, 920]


def test_a_thread_tells_it_while_the_driver_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def describe(needed: Processes) -> str:
        asked.set()
        return f"needs {needed.count}"

    for name, value in (("describe_shortage", describe), ("SAY_AFTER_S", 0.0), ("_LOOK_EVERY_S", 0.001)):
        monkeypatch.setattr(module, name, value)
    with telling_silence("nothing has come", Processes(1, {"CPU": 1.0})):
        assert asked.wait(PATIENCE_S)
