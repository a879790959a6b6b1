"""Reminders of a trouble that lasts: when they come, and when the cluster is asked. Fake clocks.

Run alone: pytest tests/orchestrator/test_reminders.py
"""

import logging

import pytest

from orchestrator.reminders import Reminders, Shortage

SLOW = "no step; in full; it may only be slow: if it lasts, this is said again after 2 minutes"
logger = logging.getLogger("orchestrator.test")


class Bench:
    """Reminders of a trouble that a driver looks at every second."""

    def __init__(self, caplog: pytest.LogCaptureFixture, is_waiting: bool) -> None:
        self.caplog, self.is_waiting = caplog, is_waiting
        self.num_asked, self.seconds = 0, 0
        self.reminders = Reminders(self.find)

    def find(self) -> Shortage:
        self.num_asked += 1
        return Shortage(self.is_waiting, "in short", "in full")

    def pass_time(self, seconds: int, has_begun: bool = False) -> list[tuple[int, str]]:
        """Let time pass; returns what was said, and when."""
        said = []
        for _ in range(seconds):
            self.seconds += 1
            self.caplog.clear()
            self.reminders.look(self.seconds, "no step", logger, has_begun=has_begun)
            said += [(self.seconds, line) for line in self.caplog.messages]
        return said


def test_work_without_a_place_is_told_soon_and_then_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    short, full = "waiting: in short", "no step; in full"
    expected = [(10, short), (20, short), (40, short), (80, full), (160, full), (320, full)]
    assert Bench(caplog, is_waiting=True).pass_time(600) == expected


def test_what_has_a_place_is_told_after_a_minute_and_the_cluster_is_asked_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(caplog, is_waiting=False)
    again = [(when, "no step; in full") for when in (120, 240, 480)]
    assert bench.pass_time(500) == [(60, SLOW), *again], "slow or stuck cannot be told at first"
    assert bench.num_asked == 11 + 4, "every 5 s of the first minute to see whether it has a place, and to tell it"


def test_work_that_is_late_in_asking_for_a_place_is_told_within_ten_seconds_from_then_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(caplog, is_waiting=False)
    assert bench.pass_time(22) == []
    bench.is_waiting = True
    assert bench.pass_time(10) == [(30, "waiting: in short")]


def test_a_place_that_is_given_in_a_moment_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, is_waiting=True)
    bench.pass_time(7)
    bench.is_waiting = False
    assert bench.pass_time(45) == []


def test_what_has_begun_is_slow_at_most(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, is_waiting=True)
    assert bench.pass_time(100, has_begun=True) == [(60, "no step; in full")]


def test_a_place_that_is_found_between_is_no_trouble_for_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, is_waiting=True)
    bench.pass_time(15)
    bench.is_waiting = False
    assert bench.pass_time(40) == []
    assert bench.pass_time(20) == [(60, "no step; in full")]


def test_a_trouble_that_was_over_is_told_as_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, is_waiting=True)
    bench.pass_time(100)
    bench.reminders.begin_anew()
    bench.seconds = 0
    assert [when for when, _ in bench.pass_time(25)] == [10, 20]
