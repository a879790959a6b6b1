"""Room for processes on what nodes have free. Alone: pytest tests/orchestrator/cluster/test_free_room.py"""

import socket

from orchestrator.cluster.free_room import answers, held_by


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
