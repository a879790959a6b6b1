"""What a driver does when nodes of its workers are drained, with clocks of its own; no Ray.

Run alone: pytest tests/orchestrator/pretraining/test_drain_watch.py
"""

import logging
from typing import Any

import pytest
import ray

from orchestrator.pretraining.drain_watch import DrainWatch
from orchestrator.training.event_queue import EventQueue, WorkerPlace


class Call:
    """A method as an actor has it, called at once."""

    def __init__(self, method: Any) -> None:
        self.remote = method


class Bench:
    """A watch over two workers, and the nodes that are drained."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ray, "get", lambda value: value)
        self.queue, self.draining, self.now, self.num_looks = EventQueue(), {}, 1000.0, 0
        actor = type("Actor", (), {"status": Call(self.queue.status), "stop": Call(self.queue.stop)})
        self.watch = DrainWatch(actor, self.find, lambda: self.now)
        for rank, host in enumerate(("north", "south")):
            self.queue.begin(WorkerPlace(rank, host, 10 + rank, f"id of {host}"))

    def find(self) -> dict[str, int]:
        self.num_looks += 1
        return self.draining

    def look(self, seconds: float = 1.0) -> bool:
        """Look once after some time; returns whether the workers are asked to leave."""
        self.now += seconds
        self.watch.look()
        assert self.watch.has_asked == self.queue.is_stopping()
        return self.watch.has_asked


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_workers_on_a_drained_node_are_asked_to_leave_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    assert not bench.look()
    bench.draining = {"id of south": 1_120_000}
    with caplog.at_level(logging.WARNING):
        assert bench.look(8.0)
        assert bench.look(8.0)
    assert caplog.messages == [
        "node south is being drained (1:51 min left): a checkpoint after this step, then a new group of workers"
    ]


def test_a_node_without_a_deadline_is_left_as_well(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.draining = {"id of north": 0}
    assert bench.look()
    assert caplog.messages[0].startswith("node north is being drained: ")


def test_nodes_without_workers_concern_nobody(bench: Bench) -> None:
    bench.draining = {"id of east": 1_120_000}
    assert not bench.look()


def test_the_cluster_is_asked_once_a_second(bench: Bench) -> None:
    for _ in range(10):
        bench.look(0.3)
    assert bench.num_looks == 3
