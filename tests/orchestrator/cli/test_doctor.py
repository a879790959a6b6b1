"""`doctor` with a cluster's address; the survey of its nodes is made up.

Alone: pytest tests/orchestrator/cli/test_doctor.py
"""

import json
import socket
from collections.abc import Iterator

import pytest

from orchestrator.cluster import node_survey
from orchestrator.cluster.doctor import Finding
from orchestrator.errors import ClusterError
from orchestrator.settings import Settings
from tests.orchestrator.cli.laboratory import Command

NODES = [
    {"node": "10.77.0.11", "cpu": "60/64", "gpu": "7/8", "memory": "120/256G", "disk": "812G"},
    {"node": "10.77.0.12", "cpu": "0.5/2", "gpu": "0/0"},
]
SILENT = Finding("node 10.77.0.12", "problem", "no answer within 30 s", "look whether the host is up")


@pytest.fixture
def address() -> Iterator[str]:
    """An address at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_each_node_has_a_row_and_each_problem_a_line(
    command: Command, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_survey, "survey_nodes", lambda settings: (NODES, [SILENT]))
    shown = command("doctor", "--address", address)
    assert shown.status == 1
    assert "no answer within 30 s" in shown.out
    table = shown.out.partition("\nnodes: ")[2].splitlines()[2:]
    assert [line.split()[:3] for line in table] == [["10.77.0.11", "60/64", "7/8"], ["10.77.0.12", "0.5/2", "0/0"]]
    rows = json.loads(command("doctor", "-f", "json", "--address", address).out)[-3:]
    assert [(row["part"], row["state"]) for row in rows] == [
        ("node 10.77.0.12", "problem"),
        ("node 10.77.0.11", "ok"),
        ("node 10.77.0.12", "ok"),
    ]
    assert rows[1]["found"] == NODES[0]


def test_a_cluster_that_refuses_is_a_problem_with_its_own_remedy(
    command: Command, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(settings: Settings) -> None:
        raise ClusterError("Ray at 10.0.0.1:6379 cannot be used: no token; set RAY_AUTH_MODE=token")

    monkeypatch.setattr(node_survey, "survey_nodes", refuse)
    shown = command("doctor", "-f", "json", "--address", address)
    (row,) = (row for row in json.loads(shown.out) if row["part"] == "nodes")
    assert (row["state"], row["remedy"], shown.status) == ("problem", "set RAY_AUTH_MODE=token", 1)
