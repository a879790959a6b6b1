"""A driver that waits for its workers: interrupts let them save, events are recorded meanwhile; fakes in place of Ray.

Run alone: pytest tests/orchestrator/training/test_following.py
"""

import logging
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import ray
import torch

from orchestrator.errors import ClusterError, RunFailedError, RunStoppedError
from orchestrator.reminders import Shortage
from orchestrator.results import Event, MessageEvent
from orchestrator.training import following
from orchestrator.training.checkpoints import Checkpoints
from orchestrator.training.event_queue import EventQueue, EventReader, WorkerPlace
from orchestrator.training.following import Follower
from orchestrator.training.storage_mark import marked_storage, refuse_without_mark
from orchestrator.training.worker_watch import Expectation, WorkerWatch
from tests.orchestrator.training.local_actor import LocalActor


class Bench:
    """A driver's side, and one worker that does something each time the driver looks."""

    def __init__(self, folder: Path, works: Callable[["Bench"], bool]) -> None:
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
        actor = LocalActor(self.queue)
        Follower(
            actor,
            EventReader(actor, self.recorded.append),
            WorkerWatch(Expectation(1, 60.0), lambda: Shortage(False, "", ""), ""),
            [lambda: None, self.check],
            self.has_ended,
            str(self.folder),
            "after this step",
        ).follow()


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of the queue answer at once, and nobody waits between two looks."""
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(following, "POLL_S", 0.0)


def test_an_interrupt_lets_the_workers_save_and_says_where_they_did(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def work(bench: Bench) -> bool:
        if bench.num_looks == 1:
            bench.queue.begin(WorkerPlace(0, "here", 1))
        bench.queue.put(MessageEvent(f"look {bench.num_looks}"))
        if bench.num_looks == 3:
            raise KeyboardInterrupt
        if bench.num_looks == 6:
            assert bench.queue.is_stopping()
            bench.save(12)
        return bench.num_looks == 6

    bench = Bench(tmp_path, work)
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

    def work(bench: Bench) -> bool:
        assert bench.num_looks < 3
        if bench.num_looks == 2:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt) as interrupt:
        Bench(tmp_path, work).follow()
    assert interrupt.value.step is None  # type: ignore[attr-defined]
    assert caplog.messages == ["stopped before the first checkpoint"]


def test_a_second_interrupt_leaves_at_once(tmp_path: Path) -> None:
    def work(bench: Bench) -> bool:
        bench.queue.begin(WorkerPlace(0, "here", 1)) if bench.num_looks == 1 else None
        assert bench.num_looks < 5
        if bench.num_looks in (2, 4):
            raise KeyboardInterrupt(bench.num_looks)
        return False

    with pytest.raises(KeyboardInterrupt) as interrupt:
        Bench(tmp_path, work).follow()
    assert interrupt.value.args == (4,)


def test_a_worker_that_fails_while_it_stops_says_why(tmp_path: Path) -> None:
    def work(bench: Bench) -> bool:
        if bench.num_looks == 1:
            bench.queue.begin(WorkerPlace(0, "here", 1))
            raise KeyboardInterrupt
        bench.queue.put(RunFailedError("the disk is full"))
        return True

    with pytest.raises(RunFailedError, match="the disk is full"):
        Bench(tmp_path, work).follow()


def test_a_driver_whose_run_is_anothers_leaves_although_nothing_happens(tmp_path: Path) -> None:
    def refuse() -> None:
        raise RunStoppedError("superseded")

    bench = Bench(tmp_path, lambda bench: bench.num_looks > 3)
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
