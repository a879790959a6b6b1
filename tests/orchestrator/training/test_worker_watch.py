"""Words of a driver on workers that do not begin, or whose steps do not end, when it gives up, and what an
interrupt lets them save; a fake clock, fakes in place of Ray.

Run alone: pytest tests/orchestrator/training/test_worker_watch.py
"""

import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import ray
import torch

from orchestrator.base.errors import ClusterError, RunFailedError, RunStoppedError
from orchestrator.base.periodic import Shortage
from orchestrator.base.results import Event, MessageEvent
from orchestrator.storage.attempts import marked_storage, refuse_without_mark
from orchestrator.training import worker_watch
from orchestrator.training.checkpoints import Checkpoints
from orchestrator.training.event_queue import EventQueue, WorkerFailure, WorkerPlace, WorkersStatus
from orchestrator.training.worker_watch import DriverLoop, WorkerWatch
from tests.orchestrator.training.local_actor import LocalActor

PLACES = (WorkerPlace(0, "north", 11), WorkerPlace(1, "south", 12))
BEGUN = WorkersStatus(PLACES)
STARTING = Shortage(False, "needs 2 × {CPU: 1}")
NO_PLACE = Shortage(True, "needs 2 × {CPU: 1}")


class Bench:
    """A watch over two workers with half an hour of patience, and the clock that it looks at."""

    def __init__(
        self, caplog: pytest.LogCaptureFixture, reports_steps: bool = True, max_wait_s: float = 1800.0
    ) -> None:
        caplog.set_level(logging.INFO)
        self.caplog, self.now = caplog, 0.0
        self.shortage, self.saved = STARTING, 80
        self.watch = WorkerWatch(
            2,
            max_wait_s,
            lambda: self.shortage,
            "resume it",
            reports_steps=reports_steps,
            newest_step=lambda: self.saved,
            clock=lambda: self.now,
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
    assert "needs 2 × {CPU: 1}" in said[0][1]


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


class Driver:
    """A driver's side, and one worker that does something each time the driver looks."""

    def __init__(self, folder: Path, works: Callable[["Driver"], bool]) -> None:
        self.queue, self.folder, self.works = EventQueue(), folder, works
        self.recorded: list[Event] = []
        self.num_looks = 0
        self.check: Callable[[], None] = lambda: None

    def has_ended(self) -> bool:
        self.num_looks += 1
        return self.works(self)

    def save(self, step: int) -> None:
        """Write a checkpoint, as a worker does that is asked to stop."""
        model = torch.nn.Linear(1, 1)
        Checkpoints(str(self.folder)).save(step, model, torch.optim.AdamW(model.parameters()), {})

    def follow(self) -> None:
        DriverLoop(
            LocalActor(self.queue),
            self.recorded.append,
            WorkerWatch(1, 60.0, lambda: Shortage(False, ""), ""),
            [lambda: None, self.check],
            self.has_ended,
            str(self.folder),
            "after this step",
        ).run()


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of the queue answer at once, and nobody waits between two looks."""
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(worker_watch, "POLL_S", 0.0)


def test_an_interrupt_lets_the_workers_save_and_says_where_they_did(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def work(bench: Driver) -> bool:
        if bench.num_looks == 1:
            bench.queue.begin(WorkerPlace(0, "here", 1))
        bench.queue.put(MessageEvent(f"look {bench.num_looks}"))
        if bench.num_looks == 3:
            raise KeyboardInterrupt
        if bench.num_looks == 6:
            assert bench.queue.is_stopping()
            bench.save(12)
        return bench.num_looks == 6

    bench = Driver(tmp_path, work)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        bench.follow()
    assert getattr(interrupt.value, "step", None) == 12
    assert bench.recorded == [MessageEvent(f"look {number}") for number in range(1, 7)]
    assert caplog.messages == [
        "stopping: saving a checkpoint after this step; Ctrl-C again leaves at once",
        "stopped after step 12",
    ]


def test_an_interrupt_before_any_worker_has_begun_leaves_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def work(bench: Driver) -> bool:
        assert bench.num_looks < 3
        if bench.num_looks == 2:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt) as interrupt:
        Driver(tmp_path, work).follow()
    assert interrupt.value.step is None  # type: ignore[attr-defined]
    assert caplog.messages == ["stopped before the first checkpoint"]


def test_a_second_interrupt_leaves_at_once(tmp_path: Path) -> None:
    def work(bench: Driver) -> bool:
        bench.queue.begin(WorkerPlace(0, "here", 1)) if bench.num_looks == 1 else None
        assert bench.num_looks < 5
        if bench.num_looks in (2, 4):
            raise KeyboardInterrupt(bench.num_looks)
        return False

    with pytest.raises(KeyboardInterrupt) as interrupt:
        Driver(tmp_path, work).follow()
    assert interrupt.value.args == (4,)


def test_a_worker_that_fails_while_it_stops_says_why(tmp_path: Path) -> None:
    def work(bench: Driver) -> bool:
        if bench.num_looks == 1:
            bench.queue.begin(WorkerPlace(0, "here", 1))
            raise KeyboardInterrupt
        bench.queue.put(RunFailedError("the disk is full"))
        return True

    with pytest.raises(RunFailedError, match="the disk is full"):
        Driver(tmp_path, work).follow()


def test_a_driver_whose_run_is_anothers_leaves_although_nothing_happens(tmp_path: Path) -> None:
    def refuse() -> None:
        raise RunStoppedError("superseded")

    bench = Driver(tmp_path, lambda bench: bench.num_looks > 3)
    bench.check = refuse
    with pytest.raises(RunStoppedError, match="superseded"):
        bench.follow()
    assert bench.num_looks == 1


def test_a_driver_leaves_a_mark_for_the_length_of_its_work(tmp_path: Path) -> None:
    with marked_storage(str(tmp_path / "run"), 3) as mark:
        refuse_without_mark(mark)
    assert list((tmp_path / "run").iterdir()) == []


def test_a_host_without_the_storage_is_named_with_the_folder(tmp_path: Path) -> None:
    with marked_storage(str(tmp_path / "run"), 3) as mark:
        elsewhere = mark.replace(str(tmp_path), str(tmp_path / "not-mounted"))
    with pytest.raises(ClusterError) as refusal:
        refuse_without_mark(elsewhere)
    message = str(refusal.value)
    assert message.startswith(f"host {socket.gethostname()} does not see {tmp_path}/not-mounted/run, which the driver ")
    assert "mount the shared storage there" in message
