"""Room on Ray's nodes: what is missing is named before Ray would wait for it.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_capacity.py
"""

import os
import socket
from typing import Literal

import pytest

from orchestrator.cluster import capacity
from orchestrator.cluster.capacity import check_processes, check_resources, decide_gpus, logical_cpus
from orchestrator.cluster.nodes import Node, Processes, answers, held_by
from orchestrator.errors import ClusterError


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


@pytest.mark.parametrize(("asked", "found", "expected"), [("auto", 0.0, 0), ("auto", 8.0, 1), (0.25, 8.0, 0.25)])
def test_gpus_of_a_process_are_decided_by_the_cluster(
    monkeypatch: pytest.MonkeyPatch, asked: float | Literal["auto"], found: float, expected: float
) -> None:
    monkeypatch.setattr(capacity, "cluster_resources", lambda: {"CPU": 8.0, "GPU": found})
    assert decide_gpus(asked) == expected


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
