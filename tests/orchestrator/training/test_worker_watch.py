"""What a driver says of workers that do not begin, or whose steps do not end, and when it gives up; a fake clock.

Run alone: pytest tests/orchestrator/training/test_worker_watch.py
"""

import logging
from dataclasses import replace

import pytest

from orchestrator.errors import ClusterError, RunFailedError
from orchestrator.reminders import Shortage
from orchestrator.training.event_queue import WorkerFailure, WorkerPlace, WorkersStatus
from orchestrator.training.worker_watch import Expectation, WorkerWatch

PLACES = (WorkerPlace(0, "north", 11), WorkerPlace(1, "south", 12))
BEGUN = WorkersStatus(PLACES)
STARTING = Shortage(False, "2 × (1 CPU) asked", "needs 2 × {CPU: 1}")
NO_PLACE = Shortage(True, "2 × (1 CPU) asked, none free on any node; no node is starting", "needs 2 × {CPU: 1}")


class Bench:
    """A watch over two workers with half an hour of patience, and the clock that it looks at."""

    def __init__(
        self, caplog: pytest.LogCaptureFixture, reports_steps: bool = True, max_wait_s: float = 1800.0
    ) -> None:
        caplog.set_level(logging.INFO)
        self.caplog, self.now = caplog, 0.0
        self.shortage, self.saved = STARTING, 80
        expected = Expectation(2, max_wait_s, reports_steps)
        self.watch = WorkerWatch(
            expected, lambda: self.shortage, "resume it", lambda: self.now, newest_step=lambda: self.saved
        )

    def pass_time(self, seconds: float, status: WorkersStatus) -> list[tuple[float, str]]:
        """Look four times a second; returns what was said, and when."""
        said: list[tuple[float, str]] = []
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            self.caplog.clear()
            self.watch.look(status)
            said += [(self.now, line) for line in self.caplog.messages]
        return said


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Bench:
    return Bench(caplog)


def test_workers_without_a_place_are_named_within_a_minute_and_then_rarely(bench: Bench) -> None:
    said = bench.pass_time(1000, WorkersStatus())
    assert [round(when) for when, _ in said] == [60, 120, 240, 480, 960]
    assert "needs 2 × {CPU: 1}" in said[1][1]


def test_workers_that_cannot_start_are_told_within_ten_seconds_and_then_rarely(bench: Bench) -> None:
    bench.shortage = NO_PLACE
    said = bench.pass_time(400, WorkersStatus())
    assert [round(when) for when, _ in said] == [10, 20, 40, 80, 160, 320]
    assert "2 × (1 CPU) asked, none free on any node" in said[0][1]


def test_a_run_whose_workers_never_begin_ends_after_the_limit(bench: Bench) -> None:
    with pytest.raises(ClusterError, match=r"max_wait_minutes \(30\)"):
        bench.pass_time(3600, WorkersStatus(PLACES[:1]))
    assert bench.now == pytest.approx(1800, abs=1)


def test_a_first_step_that_does_not_end_is_told_with_its_hosts(bench: Bench) -> None:
    ((_, line),) = bench.pass_time(61, BEGUN)
    assert "rank 0 on north (process 11), rank 1 on south (process 12)" in line


def test_a_stalled_step_is_told_within_a_minute_and_ends_the_run_at_last(bench: Bench) -> None:
    assert not [line for step in range(100) for line in bench.pass_time(0.5, replace(BEGUN, step=step))]
    ((when, line),) = bench.pass_time(61, replace(BEGUN, step=99))
    assert when == pytest.approx(bench.now - 61 + 60, abs=1.5)
    assert "the last was step 99" in line
    with pytest.raises(RunFailedError, match="max_wait_minutes"):
        bench.pass_time(3600, replace(BEGUN, step=99))


def test_slow_steps_are_no_stall(bench: Bench) -> None:
    assert not [line for step in range(10) for line in bench.pass_time(50, replace(BEGUN, step=step))]
    assert not bench.pass_time(400, replace(BEGUN, step=9)), "ten times the usual has not passed"
    assert bench.pass_time(150, replace(BEGUN, step=9))


def test_a_failure_is_told_at_once_and_the_clock_starts_anew(bench: Bench) -> None:
    bench.pass_time(50, replace(BEGUN, step=9))
    failed = WorkersStatus(failures=(WorkerFailure(1, "its host was lost", "south"),))
    assert bench.pass_time(50, failed) == [(50.25, "training worker 1 on south failed: its host was lost")]
    assert [when for when, _ in bench.pass_time(20, failed)] == [110.25]


def test_workers_that_begin_again_are_told_with_their_step_and_hosts(bench: Bench) -> None:
    failures = (WorkerFailure(1, "its host was lost", "south"),)
    bench.pass_time(5, replace(BEGUN, step=99))
    bench.pass_time(5, WorkersStatus(failures=failures))
    assert not bench.pass_time(5, WorkersStatus(PLACES[:1], failures=failures)), "one of two has begun"
    again = WorkersStatus((PLACES[0], WorkerPlace(1, "west", 13)), failures=failures)
    assert [line for _, line in bench.pass_time(5, again)] == ["starting again from step 80 on north, west"]


def test_a_group_of_more_than_the_fewest_has_begun_when_all_of_it_has(bench: Bench) -> None:
    places = tuple(WorkerPlace(rank, "north", rank, num_workers=3) for rank in range(3))
    ((_, line),) = bench.pass_time(61, WorkersStatus(places[:2]))
    assert "waiting for 3 training workers" in line
    assert not bench.pass_time(5, WorkersStatus(places))
    ((_, line),) = bench.pass_time(61, WorkersStatus(places))
    assert "no training step has ended yet" in line


def test_work_without_steps_is_watched_until_it_begins(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(caplog, reports_steps=False)
    assert bench.pass_time(61, WorkersStatus())
    assert not bench.pass_time(3600, BEGUN)
