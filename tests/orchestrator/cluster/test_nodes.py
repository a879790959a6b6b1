"""Nodes that training workers may be on. Alone: pytest tests/orchestrator/cluster/test_nodes.py"""

from typing import Any

import pytest

from orchestrator.cluster.capacity import check_processes
from orchestrator.cluster.nodes import NODE_ID, Node, choose_nodes, connected_nodes, select_nodes, selected_text
from orchestrator.cluster.processes import Processes
from orchestrator.errors import ClusterError

ACCELERATOR = "ray.io/accelerator-type"
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
    assert select_nodes(selector, NODES) == expected


def test_labels_that_no_node_has_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(ClusterError, match=r"accelerator-type: H100 .* there are ray\.io/accelerator-type: L40S"):
        select_nodes({ACCELERATOR: "H100"}, NODES)
    with pytest.raises(ClusterError, match="none has a label of these names"):
        select_nodes({"room": "cellar"}, NODES)


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
    assert choose_nodes(needed, allows_head, NODES).selector == expected


def test_the_head_takes_workers_for_which_the_others_have_no_room() -> None:
    chosen = choose_nodes(Processes(6, {"CPU": 2.0}), False, NODES)
    assert chosen.selector == {}
    assert chosen.note == "workers are placed on the head too: the other nodes have room for 5 of 6"
    alone = choose_nodes(Processes(1, {"CPU": 2.0}), False, [HEAD])
    assert (alone.selector, alone.note) == ({}, "")


def test_labels_that_no_node_has_now_are_waited_for() -> None:
    assert choose_nodes(Processes(1, {"CPU": 2.0}, {ACCELERATOR: "H100"}), False, NODES).selector == {
        ACCELERATOR: "H100"
    }


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, ""),
        ({NODE_ID: "!h0"}, " but the head"),
        ({NODE_ID: "!n1"}, " with ray.io/node-id: !n1"),
        ({ACCELERATOR: "T4", NODE_ID: "!h0"}, " with ray.io/accelerator-type: T4 but the head"),
    ],
)
def test_the_nodes_of_a_selector_are_told_in_words(selector: dict[str, str], expected: str) -> None:
    assert selected_text(selector, NODES) == expected


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
        assert select_nodes({NODE_ID: value}, [node]) == [node]
        assert ray.get(task.options(label_selector={NODE_ID: value}).remote())
    for value in (f"!{here}", gone):
        with pytest.raises(ClusterError):
            select_nodes({NODE_ID: value}, [node])
