"""Room for processes on what nodes have free. Alone: pytest tests/orchestrator/cluster/test_free_room.py"""

import socket

import pytest

from orchestrator.cluster.free_room import FreeRoom, answers, count_room, held_by
from orchestrator.cluster.nodes import NODE_ID, Node
from orchestrator.cluster.processes import Processes

NODES = [
    Node({"CPU": 2.0}, {NODE_ID: "head"}),
    Node({"CPU": 3.5}, {NODE_ID: "n1"}),
    Node({"CPU": 1.0}, {NODE_ID: "n2"}),
]
BUT_THE_HEAD = {NODE_ID: "!head"}


@pytest.mark.parametrize(
    ("cpus", "labels", "data_cpus", "num_cpus", "expected"),
    [
        (1.0, {}, 0.0, 8.0, 6),
        (1.0, BUT_THE_HEAD, 0.0, 8.0, 4),
        (1.0, BUT_THE_HEAD, 1.0, 8.0, 4),
        (1.0, BUT_THE_HEAD, 1.0, 7.0, 3),
        (0.5, BUT_THE_HEAD, 0.1, 8.0, 9),
        (0.1, {NODE_ID: "n2"}, 0.1, 2.0, 10),
        (4.0, {}, 0.0, 8.0, 0),
        (1.0, {"room": "cellar"}, 0.0, 8.0, 0),
    ],
)
def test_a_process_has_room_where_it_may_be_and_where_its_data_pipeline_has_some_too(
    cpus: float, labels: dict[str, str], data_cpus: float, num_cpus: float, expected: int
) -> None:
    assert count_room(Processes(1, {"CPU": cpus}, labels), data_cpus, FreeRoom(NODES, num_cpus)) == expected


def test_a_node_whose_ray_has_ended_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert answers("127.0.0.1", port)
    assert not answers("127.0.0.1", port)


def test_a_driver_holds_what_its_own_placement_groups_have_been_given_and_the_rest_is_others() -> None:
    bundles = {0: {"CPU": 1.0}, 1: {"CPU": 1.0, "GPU": 1.0}, 2: {"CPU": 1.0}}
    places = {0: "n1", 1: "n1", 2: ""}
    groups = {
        f"{'0' * 28}02000000": {"state": "RESCHEDULING", "bundles": bundles, "bundles_to_node_id": places},
        f"{'1' * 28}02000000": {"state": "REMOVED", "bundles": bundles, "bundles_to_node_id": places},
        f"{'2' * 28}03000000": {"state": "CREATED", "bundles": bundles, "bundles_to_node_id": places},
    }
    own, others = held_by("02000000", groups)
    assert own["n1"] == {"CPU": 2.0, "GPU": 1.0}
    assert sum(held["CPU"] for held in others.values()) == 3.0
    assert held_by("04000000", groups)[0] == {}
