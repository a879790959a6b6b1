"""Sizes of groups of workers while room comes and goes; a fake cluster and a fake clock.

Run alone: pytest tests/orchestrator/pretraining/test_elastic.py
"""

from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray.train
from ray.train.v2._internal.execution.scaling_policy import ResizeDecision

from orchestrator.cluster.free_room import FreeRoom
from orchestrator.cluster.nodes import Node
from orchestrator.pretraining import elastic
from orchestrator.pretraining.elastic import SETTLING_S, RoomPolicy
from orchestrator.results import MessageEvent
from orchestrator.training.event_queue import EventQueue, WorkerPlace
from tests.orchestrator.training.local_actor import LocalActor


class Bench:
    """A policy for 2 to 4 workers of 1 CPU each, the CPUs of its only node, and the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.free_cpus, self.queue = 100.0, 1.0, EventQueue()
        scaling = ray.train.ScalingConfig(num_workers=(2, 4), elastic_resize_monitor_interval_s=60.0)
        self.policy = RoomPolicy(scaling, dict, 0.0, LocalActor(self.queue))
        monkeypatch.setattr(ray, "get", lambda value: value)
        monkeypatch.setattr(RoomPolicy, "_maybe_send_resource_request", lambda policy: None)
        monkeypatch.setattr(RoomPolicy, "_get_reserved_resources", lambda policy: {})
        monkeypatch.setattr(elastic, "find_free_room", self.find_free_room)
        monkeypatch.setattr(elastic.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(elastic.time, "sleep", self.pass_time)
        monkeypatch.setattr("ray.train.v2._internal.execution.scaling_policy.elastic.time_monotonic", lambda: self.now)

    def find_free_room(self) -> FreeRoom:
        if self.free_cpus < 0:
            raise TimeoutError("the head does not answer")
        return FreeRoom([Node({"CPU": self.free_cpus})], 8.0)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, seconds: float) -> int | None:
        """Ask for a group for so long; returns how large it is to be, or None where there is none."""
        end = self.now + seconds
        while self.now < end:
            if size := size_of(self.policy.make_decision_for_non_running_worker_group()):
                return size
        return None

    def begin(self, num_workers: int) -> Any:
        """Let a group begin; returns its state as Ray Train has it."""
        for rank in range(num_workers):
            assert self.queue.begin(WorkerPlace(rank, "north", rank, num_workers=num_workers))
        return SimpleNamespace(start_time=self.now, num_workers=num_workers)

    def look(self, group: Any) -> int | None:
        return size_of(self.policy.make_decision_for_running_worker_group(group, None))


def size_of(decision: object) -> int | None:
    return decision.num_workers if isinstance(decision, ResizeDecision) else None


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_run_waits_for_the_fewest_and_says_so_once(bench: Bench) -> None:
    assert bench.wait(60) is None
    text = "waiting for room for 2 workers, the fewest of this run; nodes for 4 are asked for"
    assert bench.queue.take(0) == [MessageEvent(text, "warning")]
    bench.free_cpus = 2.0
    assert bench.wait(1) == 2


@pytest.mark.parametrize(("free_cpus", "size"), [(3.0, 3), (4.0, 4), (7.0, 4)])
def test_a_group_begins_with_as_many_as_have_room_up_to_the_most(bench: Bench, free_cpus: float, size: int) -> None:
    bench.free_cpus = free_cpus
    assert bench.wait(60) == size
    settling = 0.0 if size == 4 else SETTLING_S
    assert bench.now - 100.0 == pytest.approx(settling, abs=1.0), "what has just become free is not known at once"


def test_a_group_grows_once_it_has_saved_a_checkpoint_and_left(bench: Bench) -> None:
    group = bench.begin(2)
    bench.free_cpus = 4.0
    bench.pass_time(59)
    assert bench.look(group) is None
    assert not bench.queue.report_step(7)
    bench.pass_time(1)
    assert bench.look(group) is None
    assert bench.queue.report_step(8), "the workers are asked to save"
    assert bench.queue.leave(1)
    assert bench.look(group) is None
    assert bench.queue.leave(0)
    assert bench.look(group) == 4
    assert not bench.queue.status().failures
    bench.begin(4)
    assert not bench.queue.report_step(9), "the new group goes on"


@pytest.mark.parametrize("free_cpus", [2.0, 1.0, 0.0, -1.0])
def test_a_group_that_works_never_shrinks(bench: Bench, free_cpus: float) -> None:
    group = bench.begin(2)
    bench.free_cpus = free_cpus
    for _ in range(3):
        bench.pass_time(60)
        assert bench.look(group) is None
        assert not bench.queue.report_step(7)


def test_a_group_that_fails_while_it_makes_room_is_followed_by_one_that_goes_on(bench: Bench) -> None:
    group = bench.begin(2)
    bench.free_cpus = 4.0
    bench.pass_time(60)
    assert bench.look(group) is None
    bench.queue.report_failure(1, "its host was lost")
    bench.free_cpus = 3.0
    assert bench.wait(60) == 3
    group = bench.begin(3)
    assert bench.look(group) is None
    assert not bench.queue.report_step(9)


def test_workers_that_are_to_make_room_end_where_the_run_is_to_stop(bench: Bench) -> None:
    group = bench.begin(2)
    bench.free_cpus = 4.0
    bench.pass_time(60)
    bench.look(group)
    bench.queue.stop()
    assert not bench.queue.leave(0)
    assert bench.queue.report_step(8)
