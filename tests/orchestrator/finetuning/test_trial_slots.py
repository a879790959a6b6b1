"""Places of trials, and what is told without any. Alone: pytest tests/orchestrator/finetuning/test_trial_slots.py"""

import logging
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.base.errors import ClusterError
from orchestrator.base.periodic import Shortage
from orchestrator.cluster import capacity
from orchestrator.cluster.capacity import CORES, NODE_ID, Node
from orchestrator.finetuning import trial_slots
from orchestrator.finetuning.trial_slots import (
    TrialSlots,
    find_trial_shortage,
    trial_group,
)
from orchestrator.specs.sweep import SweepExecutionSpec
from orchestrator.training.event_queue import WorkersStatus
from orchestrator.training.worker_watch import WorkerWatch


class Cluster:
    """A cluster of some places, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, num_places: int, **execution: Any) -> None:
        self.num_places, self.now, self.num_asked = num_places, 0.0, 0
        monkeypatch.setattr(trial_slots, "placed_trial", lambda execution: None)
        monkeypatch.setattr(trial_slots, "cluster_room", self.count_places)
        self.slots = TrialSlots(SweepExecutionSpec(**execution), clock=lambda: self.now)

    def count_places(self, needed: None) -> int:
        self.num_asked += 1
        return self.num_places

    def fill(self) -> int:
        """Give Tune trials until no slot is free; returns how many."""
        return fill(self.slots)


def fill(slots: TrialSlots) -> int:
    before = slots.num_taken
    while slots.has_free():
        slots.num_taken += 1
    return slots.num_taken - before


def test_as_many_trials_as_fit_and_one_more_are_out_until_one_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Cluster(monkeypatch, 0).fill() == 1, "which an autoscaler sees"
    cluster = Cluster(monkeypatch, 6)
    assert cluster.fill() == 7
    cluster.slots.num_taken = 6
    assert cluster.fill() == 1


def test_nodes_that_join_are_filled_and_the_cluster_is_asked_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, 2)
    assert cluster.fill() == 3
    cluster.num_places = 4
    assert cluster.fill() == 0, "looked at a moment ago"
    cluster.now = 5.0
    assert (cluster.fill(), cluster.num_asked) == (2, 2)


HEAD = Node({"CPU": 4.0, "node:__internal_head__": 1.0}, {NODE_ID: "h0"})
OTHER = Node({"CPU": 2.0}, {NODE_ID: "n1"})


def places_and_requests(
    monkeypatch: pytest.MonkeyPatch, nodes: list[Node], **execution: Any
) -> tuple[int, list[dict[str, float]], list[dict[str, str]] | None]:
    """Places that there are for trials, and the resources and the labels that Tune asks for."""
    for module in (trial_slots, capacity):
        monkeypatch.setattr(module, "connected_nodes", lambda: nodes)
    monkeypatch.setattr(capacity, "startable_nodes", list)
    spec = SweepExecutionSpec(gpus_per_trial=0.0, **execution)
    num_trials = fill(TrialSlots(spec))
    group = trial_group(spec)
    labels = group._kwargs.get("bundle_label_selector")  # nothing public tells it
    return num_trials - 1, group.bundles, labels  # one of them waits


def test_trials_leave_the_head_to_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places_and_requests(monkeypatch, [HEAD, OTHER]) == (2, [{"CPU": 1.0}], [{NODE_ID: "!h0"}])


def test_trials_take_the_head_where_they_may_or_where_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places_and_requests(monkeypatch, [HEAD, OTHER], on_head=True) == (6, [{"CPU": 1.0}], None)
    for others in ([], [Node({"CPU": 0.5}, {NODE_ID: "n1"})]):
        assert places_and_requests(monkeypatch, [HEAD, *others]) == (4, [{"CPU": 1.0}], None)


@pytest.mark.parametrize(("cpus_per_trial", "num_at_once"), [(1.0, 2), (0.5, 4), (3.0, 1)])
def test_trials_on_a_local_ray_share_no_core(
    monkeypatch: pytest.MonkeyPatch, cpus_per_trial: float, num_at_once: int
) -> None:
    local = Node({"CPU": 4.0, CORES: 2.0}, {NODE_ID: "h0"})
    asked = [{"CPU": cpus_per_trial, CORES: min(cpus_per_trial, 2.0)}]
    assert places_and_requests(monkeypatch, [local], cpus_per_trial=cpus_per_trial) == (num_at_once, asked, None)


class Bench:
    """A watch with half an hour of patience over trials none of which runs, and the clock that it looks at."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        self.caplog, self.now = caplog, 0.0
        self.shortage = Shortage(False, "needs 1 × {GPU: 1}")
        self.watch = WorkerWatch(
            1, 1800.0, lambda: self.shortage, "resume it", reports_steps=False, clock=lambda: self.now
        )

    def pass_time(self, seconds: float) -> list[int]:
        """Look four times a second; returns when something was said."""
        said: list[int] = []
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            self.caplog.clear()
            self.watch.look(WorkersStatus())
            said += [round(self.now) for _ in self.caplog.messages]
        return said


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Bench:
    return Bench(caplog)


def test_trials_without_a_place_are_told_within_a_minute_and_end_the_sweep_at_last(bench: Bench) -> None:
    assert bench.pass_time(300) == [60, 120, 240]
    with pytest.raises(ClusterError, match=r"1 × \{GPU: 1\}.*max_wait_minutes"):
        bench.pass_time(1800)


def test_a_sweep_that_cannot_start_says_so_within_ten_seconds(bench: Bench) -> None:
    bench.shortage = replace(bench.shortage, is_waiting=True)
    assert bench.pass_time(100) == [10, 20, 40, 80]


@pytest.mark.parametrize("one_is_starting", [True, False])
def test_one_trial_more_than_there_is_room_for_is_no_trouble_while_another_is_starting(
    one_is_starting: bool, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_slots, "find_shortage", lambda needed: replace(bench.shortage, is_waiting=True))
    monkeypatch.setattr(trial_slots, "placed_trial", lambda execution: None)
    monkeypatch.setattr(trial_slots, "holds_a_place", lambda: one_is_starting)
    bench.shortage = find_trial_shortage(SweepExecutionSpec())
    assert bench.pass_time(20) == ([] if one_is_starting else [10, 20])


def test_a_spec_may_allow_fewer_trials_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Cluster(monkeypatch, 6, max_concurrent_trials=2).fill() == 2
