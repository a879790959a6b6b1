"""Warnings of a trouble that lasts, by a fake clock; work that a thread repeats beside a block.

Alone: .venv/bin/pytest tests/orchestrator/base/test_periodic.py
"""

import logging
import threading

import pytest

from orchestrator.base.periodic import Reminders, Shortage, repeating

SLOW = "no step; no place; it may only be slow: if it lasts, this is said again after 2 minutes"
LONG_S = 60.0
logger = logging.getLogger("orchestrator.test")


class Bench:
    """Reminders of a trouble that a driver looks at every second."""

    def __init__(self, caplog: pytest.LogCaptureFixture, is_waiting: bool) -> None:
        self.caplog, self.is_waiting = caplog, is_waiting
        self.num_asked, self.seconds = 0, 0
        self.reminders = Reminders(self.find)

    def find(self) -> Shortage:
        self.num_asked += 1
        return Shortage(self.is_waiting, "no place")

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
    short, full = "waiting: no place", "no step; no place"
    expected = [(10, short), (20, short), (40, short), (80, full), (160, full), (320, full)]
    assert Bench(caplog, is_waiting=True).pass_time(600) == expected


def test_what_has_a_place_is_told_after_a_minute_and_the_cluster_is_asked_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(caplog, is_waiting=False)
    again = [(when, "no step; no place") for when in (120, 240, 480)]
    assert bench.pass_time(500) == [(60, SLOW), *again], "slow or stuck cannot be told at first"
    assert bench.num_asked == 11 + 4, "every 5 s of the first minute to see whether it has a place, and to tell it"


def test_work_that_is_late_in_asking_for_a_place_is_told_within_ten_seconds_from_then_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(caplog, is_waiting=False)
    assert bench.pass_time(22) == []
    bench.is_waiting = True
    assert bench.pass_time(10) == [(30, "waiting: no place")]


def test_a_place_that_is_given_in_a_moment_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, is_waiting=True)
    bench.pass_time(7)
    bench.is_waiting = False
    assert bench.pass_time(45) == []


def test_what_has_begun_is_slow_at_most(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, is_waiting=True)
    assert bench.pass_time(100, has_begun=True) == [(60, "no step; no place")]


def test_a_place_that_is_found_between_is_no_trouble_for_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, is_waiting=True)
    bench.pass_time(15)
    bench.is_waiting = False
    assert bench.pass_time(40) == []
    assert bench.pass_time(20) == [(60, "no step; no place")]


def test_a_trouble_that_was_over_is_told_as_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, is_waiting=True)
    bench.pass_time(100)
    bench.reminders.reset()
    bench.seconds = 0
    assert [when for when, _ in bench.pass_time(25)] == [10, 20]


def test_the_work_is_repeated_during_the_block_and_not_after_it() -> None:
    num_calls, is_third = 0, threading.Event()

    def call() -> bool:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 3:
            is_third.set()
        return True

    with repeating(call, 0.001, "calls"):
        assert is_third.wait(LONG_S)
    ended_at = num_calls

    assert "calls" not in {thread.name for thread in threading.enumerate()}
    assert num_calls == ended_at


def test_work_that_returns_false_is_not_repeated() -> None:
    calls, thread_ended = [], threading.Event()

    def call() -> bool:
        calls.append(threading.current_thread())
        thread_ended.set()
        return False

    with repeating(call, 0.001, "calls"):
        assert thread_ended.wait(LONG_S)
        calls[0].join(LONG_S)

    assert len(calls) == 1


def test_a_call_under_way_is_waited_for() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), []

    def call() -> bool:
        begun.set()
        may_end.wait(LONG_S)
        ended.append(True)
        return True

    with repeating(call, 0.001, "calls"):
        assert begun.wait(LONG_S)
        may_end.set()

    assert ended


def test_a_call_under_way_is_left_alone_after_its_time() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def call() -> bool:
        begun.set()
        return may_end.wait(LONG_S)

    with repeating(call, 0.001, "left-alone", join_timeout_s=0.0):
        assert begun.wait(LONG_S)

    assert not may_end.is_set()
    may_end.set()


def test_an_error_of_the_block_passes_and_ends_the_work() -> None:
    with pytest.raises(KeyError), repeating(lambda: True, 0.001, "of-an-error"):
        raise KeyError

    assert "of-an-error" not in {thread.name for thread in threading.enumerate()}
