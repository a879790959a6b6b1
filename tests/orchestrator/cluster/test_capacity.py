"""Nodes that workers may be on, or that an autoscaler may start, and what a cluster has room for.

Alone: pytest tests/orchestrator/cluster/test_capacity.py
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import ClusterError
from orchestrator.cluster import capacity
from orchestrator.cluster.capacity import (
    ACCELERATOR,
    NODE_ID,
    Node,
    Processes,
    answers,
    check_processes,
    check_resources,
    choose_nodes,
    cluster_room,
    connected_nodes,
    held_by,
    logical_cpus,
    nodes_of,
    nodes_with,
    read_cluster_file,
)

HEAD = Node({"CPU": 4.0, "node:__internal_head__": 1.0}, {NODE_ID: "h0"})
SMALL = Node({"CPU": 2.0, "GPU": 1.0}, {NODE_ID: "n1", ACCELERATOR: "T4", "ray.io/market-type": "spot"})
LARGE = Node({"CPU": 8.0, "GPU": 2.0}, {NODE_ID: "n2", ACCELERATOR: "L40S"})
NODES = [HEAD, SMALL, LARGE]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, [HEAD, SMALL, LARGE]),
        ({ACCELERATOR: "L40S"}, [LARGE]),
        ({ACCELERATOR: "!T4"}, [HEAD, LARGE]),
        ({ACCELERATOR: "in(L40S, T4)"}, [SMALL, LARGE]),
        ({ACCELERATOR: "!in(L40S,T4)"}, [HEAD]),
        ({ACCELERATOR: "in(L40S, T4)", "ray.io/market-type": "!spot"}, [LARGE]),
    ],
)
def test_a_selector_takes_nodes_by_all_its_labels(selector: dict[str, str], expected: list[Node]) -> None:
    assert nodes_with(selector, NODES) == expected


def test_labels_that_no_node_has_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(ClusterError, match=r"accelerator-type: H100 .* there are ray\.io/accelerator-type: L40S"):
        check_processes([Processes(1, {"CPU": 1.0}, {ACCELERATOR: "H100"})], NODES)
    with pytest.raises(ClusterError, match="none has a label of these names"):
        check_processes([Processes(1, {"CPU": 1.0}, {"room": "cellar"})], NODES)


@pytest.mark.parametrize(
    ("needed", "allows_head", "expected"),
    [
        (Processes(4, {"CPU": 2.0}), False, {NODE_ID: "!h0"}),
        (Processes(4, {"CPU": 2.0}), True, {}),
        (Processes(2, {"CPU": 2.0}, {ACCELERATOR: "L40S"}), False, {ACCELERATOR: "L40S"}),
        (Processes(1, {"CPU": 2.0}, {NODE_ID: "in(h0, n1)"}), False, {NODE_ID: "in(h0, n1)"}),
        (Processes(2, {"CPU": 2.0}, {ACCELERATOR: "!T4"}), False, {ACCELERATOR: "!T4", NODE_ID: "!h0"}),
    ],
)
def test_the_head_is_left_out_where_the_others_have_room(
    needed: Processes, allows_head: bool, expected: dict[str, str]
) -> None:
    assert choose_nodes(needed, allows_head, NODES) == expected


def test_the_head_takes_workers_for_which_the_others_have_no_room() -> None:
    assert choose_nodes(Processes(6, {"CPU": 2.0}), False, NODES) == {}
    assert choose_nodes(Processes(1, {"CPU": 2.0}), False, [HEAD]) == {}


def test_labels_that_no_node_has_now_are_waited_for() -> None:
    h100 = {ACCELERATOR: "H100"}
    assert choose_nodes(Processes(1, {"CPU": 2.0}, h100), False, NODES) == h100


def test_room_is_counted_on_nodes_with_the_labels_alone() -> None:
    check_processes([Processes(4, {"CPU": 2.0}, {ACCELERATOR: "L40S"})], NODES)
    with pytest.raises(ClusterError, match="5 processes are asked, each with 2 CPUs on one node"):
        check_processes([Processes(5, {"CPU": 2.0}, {ACCELERATOR: "L40S"})], NODES)


@pytest.mark.ray
def test_rays_own_choice_is_the_one_that_is_foreseen(ray_cluster: Any) -> None:
    import ray

    (node,) = connected_nodes()
    assert node.is_head
    here = node.labels[NODE_ID]
    task = ray.remote(lambda: True)
    # Of several ids in `in(…)` Ray 2.60 asks any one for a place, and aborts the driver where there is no such node.
    gone, never = "0" * len(here), "f" * len(here)
    for value in (here, f"!{gone}", f"!in({gone}, {never})"):
        assert nodes_with({NODE_ID: value}, [node]) == [node]
        assert ray.get(task.options(label_selector={NODE_ID: value}).remote())
    for value in (f"!{here}", gone):
        assert nodes_with({NODE_ID: value}, [node]) == []


CLUSTER_FILE: dict[str, Any] = {
    "max_workers": 3,
    "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"CPU": 0}},
        "cpu": {"resources": {"CPU": 8}, "max_workers": 9, "labels": {"market": "spot"}},
        "gpu": {"resources": {"CPU": 4, "GPU": 1, "accelerator_type:L40S": 1}, "min_workers": 0, "max_workers": 2},
    },
}


@pytest.fixture
def autoscaling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of a head alone, which may start what the file says."""
    monkeypatch.setattr(capacity, "connected_nodes", lambda: [Node({"node:__internal_head__": 1.0})])
    monkeypatch.setattr(capacity, "startable_nodes", lambda: nodes_of(CLUSTER_FILE))


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
    assert cluster_room(Processes(1, gpu_worker)) == 2
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
    assert capacity.startable_nodes() == []
    assert capacity.cluster_resources()["CPU"] == 6.0


def test_exactly_enough_resources_are_enough_and_missing_ones_are_named_with_what_there_is() -> None:
    check_resources({"CPU": 4, "GPU": 0}, {"CPU": 4.0, "memory": 1e9})
    with pytest.raises(ClusterError, match="execution") as caught:
        check_resources({"CPU": 2.1, "GPU": 1, "memory": 3 << 30}, {"CPU": 2.0, "memory": float(1 << 30)})
    assert "2.1 CPUs asked, 2 CPUs there" in str(caught.value)
    assert "1 GPU asked, 0 GPUs there" in str(caught.value)
    assert "3.0 GiB of memory asked, 1.0 GiB of memory there" in str(caught.value)


TWO_SMALL_NODES = [Node({"CPU": 2.0, "memory": 1e9}), Node({"CPU": 2.0})]


@pytest.mark.parametrize(
    ("processes", "complaint"),
    [
        (Processes(1, {"CPU": 4.0}), "1 process is asked with 4 CPUs on one node; the cluster has room for 0"),
        (
            Processes(4, {"CPU": 1.5}),
            "4 processes are asked, each with 1.5 CPUs on one node; the cluster has room for 2",
        ),
        (Processes(3, {"CPU": 1.0, "GPU": 1.0}), "each with 1 CPU and 1 GPU on one node; the cluster has room for 0"),
    ],
)
def test_what_fits_the_sum_of_the_nodes_and_no_single_one_is_refused(processes: Processes, complaint: str) -> None:
    with pytest.raises(ClusterError, match=complaint):
        check_processes([Processes(1, {"CPU": 1.0}), processes], TWO_SMALL_NODES)


@pytest.mark.parametrize(
    "fitting", [Processes(4, {"CPU": 1.0, "GPU": 0.0}), Processes(20, {"CPU": 0.2}), Processes(2, {"CPU": 2.0})]
)
def test_processes_fill_the_nodes_and_one_more_finds_no_room(fitting: Processes) -> None:
    check_processes([fitting], TWO_SMALL_NODES)
    with pytest.raises(ClusterError, match=f"the cluster has room for {fitting.count}"):
        check_processes([Processes(fitting.count + 1, fitting.resources)], TWO_SMALL_NODES)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_real_cluster_is_asked_for_its_nodes() -> None:
    check_processes([Processes(6, {"CPU": 1.0})])
    with pytest.raises(ClusterError, match="1 process is asked with 7 CPUs on one node; the cluster has room for 0"):
        check_processes([Processes(1, {"CPU": 7.0})])


def test_a_local_ray_counts_what_is_needed_within_reason() -> None:
    cores = os.cpu_count() or 1
    assert logical_cpus(0) == cores
    assert logical_cpus(cores + 0.5) == cores + 1
    assert logical_cpus(1000 * cores) == 4 * cores


def test_a_node_whose_ray_has_ended_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert answers("127.0.0.1", port)
    assert not answers("127.0.0.1", port)


def test_a_driver_holds_what_its_own_placement_groups_have_been_given() -> None:
    bundles = {0: {"CPU": 1.0}, 1: {"CPU": 1.0, "GPU": 1.0}, 2: {"CPU": 1.0}}
    places = {0: "n1", 1: "n1", 2: ""}
    groups = {
        f"{'0' * 28}02000000": {"state": "RESCHEDULING", "bundles": bundles, "bundles_to_node_id": places},
        f"{'1' * 28}02000000": {"state": "REMOVED", "bundles": bundles, "bundles_to_node_id": places},
        f"{'2' * 28}03000000": {"state": "CREATED", "bundles": bundles, "bundles_to_node_id": places},
    }
    assert held_by("02000000", groups)["n1"] == {"CPU": 2.0, "GPU": 1.0}
    assert held_by("04000000", groups) == {}
