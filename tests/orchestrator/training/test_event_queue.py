"""The event queue between workers and driver: order, confirmation, interrupted readers, requests to stop, its node.

Run alone: pytest tests/orchestrator/training/test_event_queue.py
"""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import ray

from orchestrator.base.results import Event, MessageEvent
from orchestrator.training.event_queue import EventQueue, WorkerFailure, WorkerPlace
from orchestrator.training.worker_watch import DriverLoop
from tests.orchestrator.training.local_actor import LocalActor
from tests.waiting import PATIENCE_S


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> EventQueue:
    """A queue in this process."""
    monkeypatch.setattr(ray, "get", lambda value: value)
    return EventQueue()


def driver_loop(queue: EventQueue, on_event: Callable[[Event], None]) -> DriverLoop:
    unwatched: Any = None
    return DriverLoop(LocalActor(queue), on_event, unwatched, [], lambda: True, "run", "")


def message(number: int) -> MessageEvent:
    return MessageEvent(str(number))


def test_events_are_confirmed_when_the_driver_has_recorded_them(queue: EventQueue) -> None:
    queue.put(message(0))
    queue.put(message(1))
    assert queue.take(0) == [message(0), message(1)]
    assert (queue.num_put(), queue.report_step(1).num_confirmed) == (2, 0)
    queue.put(message(2))
    assert queue.take(2) == [message(2)]
    assert (queue.num_put(), queue.report_step(1).num_confirmed) == (3, 2)


@pytest.mark.parametrize("interrupted_at", [0, 1, 2])
def test_an_interrupted_reader_passes_every_event_on(queue: EventQueue, interrupted_at: int) -> None:
    for number in range(3):
        queue.put(message(number))
    recorded: list[Event] = []

    def record_until_interrupted(event: Event) -> None:
        if len(recorded) == interrupted_at:
            raise KeyboardInterrupt
        recorded.append(event)

    loop = driver_loop(queue, record_until_interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.take_events()
    loop.on_event = recorded.append
    loop.take_events()
    assert recorded == [message(number) for number in range(3)]
    loop.take_events()
    assert queue.report_step(1).num_confirmed == 3


def test_an_error_of_a_worker_is_raised_in_the_driver(queue: EventQueue) -> None:
    queue.put(ValueError("odd"))
    assert queue.report_step(1).has_failed
    with pytest.raises(ValueError, match="odd"):
        driver_loop(queue, lambda event: None).take_events()
    assert not queue.begin(WorkerPlace(0, "a", 1)), "a restarted worker has nothing to do"


def test_workers_learn_of_a_stop_with_their_next_report(queue: EventQueue) -> None:
    assert queue.begin(WorkerPlace(0, "a", 1))
    assert not queue.report_step(3).is_stopping
    queue.stop()
    assert queue.report_step(4).is_stopping
    assert queue.is_stopping()
    assert not queue.report_step(5).has_failed, "a stop is no failure"


def test_workers_that_begin_together_go_in_or_leave_together(queue: EventQueue) -> None:
    assert queue.begin(WorkerPlace(0, "a", 1))
    queue.stop()
    assert queue.begin(WorkerPlace(1, "b", 2)), "the one that was let in waits for it"
    queue.report_failure(0, "its node is gone")
    assert not any(queue.begin(WorkerPlace(rank, "c", 3 + rank)) for rank in (0, 1)), "who begins now ends at once"


def test_a_failure_names_the_host_and_forgets_the_places(queue: EventQueue) -> None:
    queue.begin(WorkerPlace(0, "a", 1))
    queue.begin(WorkerPlace(1, "b", 2))
    queue.report_step(7)
    queue.report_failure(1, "out of memory")
    status = queue.status()
    assert (status.places, status.step) == ((), None)
    assert [str(failure) for failure in status.failures] == ["training worker 1 on b failed: out of memory"]


def test_a_worker_that_begins_again_without_a_word_had_died(queue: EventQueue) -> None:
    queue.begin(WorkerPlace(0, "a", 1))
    queue.begin(WorkerPlace(0, "a", 2))
    assert queue.status().failures == (WorkerFailure(0, "its process was killed or crashed", "a"),)


def test_a_group_that_ray_has_ended_for_another_one_has_not_failed(queue: EventQueue) -> None:
    queue.begin(WorkerPlace(0, "a", 1))
    queue.report_step(7)
    queue.place_workers({"disk": "ssd"})
    assert (queue.status().places, queue.status().step) == ((), None)
    queue.begin(WorkerPlace(0, "a", 2))
    assert not queue.status().failures


@pytest.mark.ray
def test_the_queue_lives_on_the_drivers_node(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "tests.orchestrator.training.queues_on_cluster"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    nodes = json.loads(next(line for line in found.stdout.splitlines() if line.startswith("{")))
    assert len(nodes["queues"]) == 8
    assert set(nodes["queues"]) == {nodes["driver"]}
