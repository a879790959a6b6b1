"""Warnings of a driver while nothing comes from the cluster; a fake clock, no Ray.

Run alone: pytest tests/orchestrator/cluster/test_silence.py
"""

import threading

import pytest

from orchestrator import reminders
from orchestrator.cluster import silence as module
from orchestrator.cluster.processes import Processes
from orchestrator.cluster.silence import SilenceWatch, telling_silence
from orchestrator.reminders import Shortage
from tests.waiting import PATIENCE_S

STARTING = Shortage(False, "1 × (1 CPU) asked, room for 1 now", "needs 1 × {CPU: 1}")
NO_PLACE = Shortage(True, "1 × (1 CPU) asked, none free on any node", "needs 1 × {CPU: 1}")


def test_silence_is_told_within_a_minute_with_what_is_missing_and_then_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    watch = SilenceWatch("no text has been tokenized", lambda: STARTING, lambda: now[0])
    told = []
    for second in range(1, 1000):
        now[0] = float(second)
        caplog.clear()
        watch.look()
        told += [second] * len(caplog.messages)
        if second == 60:
            (line,) = caplog.messages
            assert line.startswith("no text has been tokenized for 1:00 min; needs 1 × {CPU: 1}; it may only be slow")
        if second == 440:
            watch.note()
    assert told == [60, 120, 240, 500, 560, 680, 920]


def test_work_without_a_place_is_told_within_ten_seconds_until_something_has_come(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    watch = SilenceWatch("no text has been tokenized", lambda: NO_PLACE, lambda: now[0])
    told = []
    for second in range(1, 200):
        now[0] = float(second)
        caplog.clear()
        watch.look()
        told += [(second, line.partition(";")[0]) for line in caplog.messages]
        if second == 25:
            watch.note()
    waiting, silent = "waiting: 1 × (1 CPU) asked, none free on any node", "no text has been tokenized for"
    assert told == [(10, waiting), (20, waiting), (85, f"{silent} 1:00 min"), (145, f"{silent} 2:00 min")]


def test_a_thread_tells_it_while_the_driver_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def find(needed: Processes) -> Shortage:
        asked.set()
        return STARTING

    monkeypatch.setattr(module, "find_shortage", find)
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(reminders, "SAY_AFTER_S", 0.0)
    with telling_silence("nothing has come", Processes(1, {"CPU": 1.0})):
        assert asked.wait(PATIENCE_S)
