"""Nodes and cores of a sweep's trials: chosen for each as it is handed out, no head where others have room; no Ray.

Run alone: pytest tests/orchestrator/finetuning/test_trial_placement.py
"""

import pytest

from orchestrator.cluster import capacity, node_types
from orchestrator.cluster.capacity import CORES
from orchestrator.cluster.nodes import NODE_ID, Node
from orchestrator.finetuning import trial_room
from orchestrator.finetuning.trial_room import room_for_trials, trial_group
from orchestrator.specs.sweep import SweepExecutionSpec

HEAD = Node({"CPU": 4.0, "node:__internal_head__": 1.0}, {NODE_ID: "h0"})
OTHER = Node({"CPU": 2.0}, {NODE_ID: "n1"})


def places_and_labels(
    monkeypatch: pytest.MonkeyPatch, nodes: list[Node], on_head: bool = False
) -> tuple[int, list[dict[str, str]] | None]:
    """Places that there are for trials, and the labels that Tune asks for."""
    for module in (trial_room, capacity):
        monkeypatch.setattr(module, "connected_nodes", lambda: nodes)
    monkeypatch.setattr(node_types, "startable_nodes", list)
    execution = SweepExecutionSpec(gpus_per_trial=0.0, on_head=on_head)
    room, num_trials = room_for_trials(execution), 0
    while room.has_room():
        room.add()
        num_trials += 1
    group = trial_group(execution)
    assert group.bundles == [{"CPU": 1.0}]
    return num_trials - 1, group._kwargs.get("bundle_label_selector")  # nothing public tells it


def test_trials_leave_the_head_to_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places_and_labels(monkeypatch, [HEAD, OTHER]) == (2, [{NODE_ID: "!h0"}])


def test_trials_take_the_head_where_they_may_or_where_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places_and_labels(monkeypatch, [HEAD, OTHER], on_head=True) == (6, None)
    assert places_and_labels(monkeypatch, [HEAD]) == (4, None)
    assert places_and_labels(monkeypatch, [HEAD, Node({"CPU": 0.5}, {NODE_ID: "n1"})]) == (4, None)


@pytest.mark.parametrize(("cpus_per_trial", "num_at_once"), [(1.0, 2), (0.5, 4), (3.0, 1)])
def test_trials_on_a_local_ray_share_no_core(
    monkeypatch: pytest.MonkeyPatch, cpus_per_trial: float, num_at_once: int
) -> None:
    local = Node({"CPU": 4.0, CORES: 2.0}, {NODE_ID: "h0"})
    for module in (trial_room, capacity):
        monkeypatch.setattr(module, "connected_nodes", lambda: [local])
    monkeypatch.setattr(node_types, "startable_nodes", list)
    execution = SweepExecutionSpec(gpus_per_trial=0.0, cpus_per_trial=cpus_per_trial)
    assert trial_group(execution).bundles == [{"CPU": cpus_per_trial, CORES: min(cpus_per_trial, 2.0)}]
    room = room_for_trials(execution)
    for _ in range(num_at_once + 1):  # and one that waits
        assert room.has_room()
        room.add()
    assert not room.has_room()
