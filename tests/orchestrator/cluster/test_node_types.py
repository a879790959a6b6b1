"""Nodes that an autoscaler may start: what the cluster file says of them, and what a run is refused by it.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_node_types.py
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cluster import capacity, node_types
from orchestrator.cluster.capacity import check_processes, cluster_room
from orchestrator.cluster.node_types import ACCELERATOR, nodes_of, read_cluster_file
from orchestrator.cluster.nodes import Node
from orchestrator.cluster.processes import Processes
from orchestrator.errors import ClusterError

CLUSTER_FILE: dict[str, Any] = {
    "max_workers": 3,
    "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"CPU": 0}},
        "cpu": {"resources": {"CPU": 8}, "max_workers": 9, "labels": {"market": "spot"}},
        "gpu": {"resources": {"CPU": 4, "GPU": 1, "accelerator_type:L40S": 1}, "min_workers": 0, "max_workers": 2},
    },
}
HEAD = Node({"node:__internal_head__": 1.0})


@pytest.fixture
def autoscaling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of a head alone, which may start what the file says."""
    for module in (capacity, node_types):
        monkeypatch.setattr(module, "connected_nodes", lambda: [HEAD])
    monkeypatch.setattr(node_types, "startable_nodes", lambda: nodes_of(CLUSTER_FILE))


def test_a_type_counts_as_often_as_the_file_lets_it_be_up() -> None:
    cpu = Node({"CPU": 8.0}, {"market": "spot"})
    gpu = Node({"CPU": 4.0, "GPU": 1.0, "accelerator_type:L40S": 1.0}, {ACCELERATOR: "L40S"})
    assert nodes_of(CLUSTER_FILE) == [cpu] * 3 + [gpu] * 2
    assert nodes_of({}) == []


def test_the_file_is_that_of_the_autoscaler_at_this_address(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(json.dumps(CLUSTER_FILE))  # JSON is YAML
    program = "print('up', flush=True); input()"
    options = ["--gcs-address=10.0.0.1:6379", f"--autoscaling-config={tmp_path / 'cluster.yaml'}"]
    command = [sys.executable, "-c", program, *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as autoscaler:
        assert autoscaler.stdout is not None
        assert autoscaler.stdout.readline() == "up\n"
        assert read_cluster_file("127.0.0.1:6379") == CLUSTER_FILE
        assert read_cluster_file("127.0.0.1:637") == {}
        autoscaler.communicate("\n")
    assert read_cluster_file("127.0.0.1:6379") == {}


@pytest.mark.usefixtures("autoscaling")
def test_what_a_type_can_hold_is_waited_for_and_what_none_can_is_refused() -> None:
    gpu_worker = {"CPU": 4.0, "GPU": 1.0}
    check_processes(
        [Processes(2, gpu_worker), Processes(3, {"CPU": 8.0}), Processes(2, gpu_worker, {ACCELERATOR: "L40S"})]
    )
    assert cluster_room(Processes(1, gpu_worker)) == (0, 2)
    with pytest.raises(ClusterError, match="the cluster has room for 2, with all nodes that its autoscaler may start"):
        check_processes([Processes(3, gpu_worker)])
    with pytest.raises(ClusterError, match="2 GPUs on one node; the cluster has room for 0, with all"):
        check_processes([Processes(1, {"GPU": 2.0})])
    with pytest.raises(ClusterError, match="node_labels"):
        check_processes([Processes(1, gpu_worker, {ACCELERATOR: "H100"})])


@pytest.mark.ray
def test_a_ray_without_an_autoscaler_starts_nothing(ray_cluster: None) -> None:
    import ray

    assert read_cluster_file(ray.get_runtime_context().gcs_address) == {}
    assert node_types.startable_nodes() == []
    assert node_types.cluster_resources()["CPU"] == 6.0
