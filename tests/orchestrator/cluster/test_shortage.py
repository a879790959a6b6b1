"""What a cluster lacks, from the report of its head. Alone: pytest tests/orchestrator/cluster/test_shortage.py"""

import pytest
from ray.autoscaler.v2 import schema

from orchestrator.cluster.processes import Processes
from orchestrator.cluster.shortage import describe_shortage, shortage_text


def node(address: str, used: float, total: float = 2.0) -> schema.NodeInfo:
    cpus = schema.ResourceUsage(resource_name="CPU", total=total, used=used)
    memory = schema.ResourceUsage(resource_name="memory", total=1e10, used=0.0)
    return schema.NodeInfo(
        instance_type_name="",
        node_status="RUNNING",
        ray_node_type_name="worker",
        instance_id="",
        ip_address=address,
        resource_usage=schema.NodeUsage(usage=[memory, cpus], idle_time_ms=0),
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


@pytest.mark.ray
def test_the_connected_ray_is_asked(ray_cluster: None) -> None:
    text = describe_shortage(Processes(2, {"CPU": 1.0}))
    assert text.startswith("needs 2 × {CPU: 1}; free now: ")
    assert "of 6 CPU on " in text
