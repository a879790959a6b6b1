"""Shortages of a cluster, from the report of its head; work from which nothing comes; a head that has gone.

Alone: pytest tests/orchestrator/cluster/test_shortage.py
"""

import threading

import pytest
import ray
from ray.autoscaler.v2 import schema

from orchestrator.base import periodic
from orchestrator.base.periodic import Shortage
from orchestrator.cluster import shortage as module
from orchestrator.cluster.capacity import NODE_ID, Processes
from orchestrator.cluster.shortage import (
    StallWatch,
    find_shortage,
    shortage_of,
    shortage_text,
    warn_when_stalled,
)
from tests.waiting import PATIENCE_S, wait_until


def node(address: str, used: float, total: float = 2.0, **others: object) -> schema.NodeInfo:
    cpus = schema.ResourceUsage(resource_name="CPU", total=total, used=used)
    memory = schema.ResourceUsage(resource_name="memory", total=1e10, used=0.0)
    return schema.NodeInfo(
        instance_type_name="",
        ray_node_type_name="worker",
        instance_id="",
        ip_address=address,
        resource_usage=schema.NodeUsage(usage=[memory, cpus], idle_time_ms=0),
        **({"node_status": "RUNNING"} | others),
    )


def test_free_resources_waiting_demands_and_lost_nodes_are_one_line() -> None:
    two = schema.ResourceRequestByCount(bundle={"CPU": 1.0, "GPU": 1.0}, count=2)
    one = schema.ResourceRequestByCount(bundle={"CPU": 0.5}, count=1)
    status = schema.ClusterStatus(
        active_nodes=[node("10.0.0.1", used=1.5)],
        idle_nodes=[node("10.0.0.2", used=0.0)],
        failed_nodes=[node("10.0.0.3", used=0.0)],
        resource_demands=schema.ResourceDemandSummary(
            placement_group_demand=[schema.PlacementGroupResourceDemand([two], "")],
            ray_task_actor_demand=[schema.RayTaskActorDemand([one])],
        ),
    )
    assert shortage_text(status) == (
        "free now: 0.5 of 2 CPU on 10.0.0.1, 2 of 2 CPU on 10.0.0.2; waiting for a place: 2 × {CPU: 1, GPU: 1}, "
        "1 × {CPU: 0.5}; nodes: 2 alive, 1 lost (10.0.0.3)"
    )


def test_a_cluster_without_nodes_is_told_as_such() -> None:
    assert shortage_text(schema.ClusterStatus()).startswith("free now: no node is alive; nothing waits for a place")


GPU_WORKERS = Processes(2, {"CPU": 1.0, "GPU": 1.0})
JOB = "0a000000"


def status_with(group_id: str = "", tasks: dict[str, float] | None = None, **others: object) -> schema.ClusterStatus:
    """A busy node, on which a placement group or a task waits."""
    bundles = [schema.ResourceRequestByCount(bundle={"CPU": 1.0, "GPU": 1.0}, count=2)]
    groups = [schema.PlacementGroupResourceDemand(bundles, f"{group_id}:PACK|PENDING")] if group_id else []
    shapes = [schema.RayTaskActorDemand([schema.ResourceRequestByCount(bundle=tasks, count=1)])] if tasks else []
    demands = schema.ResourceDemandSummary(placement_group_demand=groups, ray_task_actor_demand=shapes)
    return schema.ClusterStatus(active_nodes=[node("10.0.0.1", used=2.0)], resource_demands=demands, **others)


def test_work_without_a_place_is_told_with_what_the_autoscaler_starts() -> None:
    starting = schema.LaunchRequest("g5.xlarge", "gpu", 2, schema.LaunchRequest.Status.PENDING, 0)
    shortage = shortage_of(GPU_WORKERS, status_with(f"77{JOB}", pending_launches=[starting]), JOB)
    assert shortage.is_waiting
    assert shortage.text.startswith("needs 2 × {CPU: 1, GPU: 1}; free now: 0 of 2 CPU on 10.0.0.1; waiting for a place")
    assert shortage.text.endswith("nodes: 1 alive; autoscaler: starting 2 × gpu")


def test_nodes_that_the_first_autoscaler_starts_are_told_as_well() -> None:
    report = {"pending_nodes": [["10.0.0.9", "gpu", "setting-up"]], "pending_launches": {"gpu": 1, "cpu": 3}}
    assert shortage_of(GPU_WORKERS, status_with(), JOB, report).text.endswith("autoscaler: starting 3 × cpu, 2 × gpu")
    assert shortage_of(GPU_WORKERS, status_with(), JOB, {}).text.endswith("no node is starting")


def test_what_others_wait_for_is_not_ours() -> None:
    assert not shortage_of(GPU_WORKERS, status_with("770b000000", tasks={"CPU": 4.0}), JOB).is_waiting
    assert shortage_of(GPU_WORKERS, status_with(tasks={"GPU": 1.0, "CPU": 1.0}), JOB).is_waiting


def test_a_node_that_is_drained_and_labels_that_are_asked_for_are_told() -> None:
    status = schema.ClusterStatus(active_nodes=[node("10.0.0.1", used=0.0, node_status="DRAINING")])
    text = shortage_of(Processes(1, {"CPU": 1.0}, {"market": "spot", NODE_ID: "!h0"}), status).text
    assert text.startswith("needs 1 × {CPU: 1} on nodes with market: spot; free now: ")
    assert "2 of 2 CPU on 10.0.0.1, which is being drained" in text


@pytest.mark.ray
def test_the_connected_ray_is_asked(ray_cluster: None) -> None:
    text = find_shortage(Processes(2, {"CPU": 1.0})).text
    assert text.startswith("needs 2 × {CPU: 1}; free now: ")
    assert "of 6 CPU on " in text


@pytest.mark.ray
def test_a_placement_group_and_a_task_without_a_place_are_seen(ray_cluster: None) -> None:
    """The tests' cluster has no GPU; workers and trials wait as placement groups, other work as tasks."""
    needed = Processes(1, {"CPU": 1.0, "GPU": 1.0})
    wait_until(lambda: not find_shortage(needed).is_waiting, "what another test has cancelled is still seen")
    group = ray.util.placement_group([{"CPU": 1.0, "GPU": 1.0}])
    wait_until(lambda: find_shortage(needed).is_waiting, "the placement group is not seen")
    assert find_shortage(needed).text.endswith("no node is starting")
    ray.util.remove_placement_group(group)
    wait_until(lambda: not find_shortage(needed).is_waiting, "the placement group is still seen")
    task = ray.remote(num_cpus=1, num_gpus=1)(find_shortage).remote(needed)
    wait_until(lambda: find_shortage(needed).is_waiting, "the task is not seen")
    ray.cancel(task, force=True)


STARTING = Shortage(False, "needs 1 × {CPU: 1}")
NO_PLACE = Shortage(True, "needs 1 × {CPU: 1}")


def test_silence_is_told_within_a_minute_with_what_is_missing_and_then_rarely(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    watch = StallWatch("no text has been tokenized", lambda: STARTING, lambda: now[0])
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
    watch = StallWatch("no text has been tokenized", lambda: NO_PLACE, lambda: now[0])
    told = []
    for second in range(1, 200):
        now[0] = float(second)
        caplog.clear()
        watch.look()
        told += [(second, line.partition(";")[0]) for line in caplog.messages]
        if second == 25:
            watch.note()
    waiting, silent = "waiting: needs 1 × {CPU: 1}", "no text has been tokenized for"
    assert told == [(10, waiting), (20, waiting), (85, f"{silent} 1:00 min"), (145, f"{silent} 2:00 min")]


def test_a_thread_tells_it_while_the_driver_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def find(needed: Processes) -> Shortage:
        asked.set()
        return STARTING

    monkeypatch.setattr(module, "find_shortage", find)
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(periodic, "SAY_AFTER_S", 0.0)
    with warn_when_stalled("nothing has come", Processes(1, {"CPU": 1.0})):
        assert asked.wait(PATIENCE_S)
