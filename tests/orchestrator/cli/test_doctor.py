"""`doctor` with a cluster's address: a row for each node, a line for each problem. No Ray: reports are made up.

Run alone: pytest tests/orchestrator/cli/test_doctor.py
"""

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from orchestrator.cli.commands.doctor import problem_lines
from orchestrator.cluster import doctor as module
from orchestrator.cluster.doctor import ExaminedNode
from orchestrator.cluster.doctor.node_findings import judge
from orchestrator.cluster.doctor.node_report import NodeView
from orchestrator.errors import ClusterError
from orchestrator.settings import Settings
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.cluster.node_reports import FIRST, HERE, REPORT, SECOND, SILENT

STORAGE = "/srv/lab/storage"
UNMOUNTED = replace(SECOND, report=replace(REPORT, sees_storage=False))


@pytest.fixture
def address() -> Iterator[str]:
    """An address at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def cluster_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Function that makes up a cluster's nodes."""

    def make_up(*views: NodeView) -> None:
        monkeypatch.setattr(module, "examine_nodes", lambda settings: judge(views, HERE, STORAGE))

    return make_up


def test_each_node_has_a_row_within_80_characters_and_each_problem_a_line(
    command: Command, address: str, cluster_of: Callable[..., None]
) -> None:
    cluster_of(FIRST, UNMOUNTED, SILENT)
    shown = command("doctor", "--address", address)
    assert shown.status == 1
    table = shown.out.partition("\nnodes: ")[2].splitlines()[1:]
    assert [line.split()[:4] for line in table[:4]] == [
        ["node", "state", "cpu", "gpu"],
        ["10.77.0.11", "ok", "60/64", "7/8"],
        ["10.77.0.12", "problem", "0.5/2", "0/0"],
        ["10.77.0.13", "silent", "2/2", "0/0"],
    ]
    assert table[1].split()[4:] == ["120/256G", "812G", "+12", "ms", "1,118", "enp0s31f6"]
    assert max(map(len, table[:4])) <= 80
    assert [line.partition("; ")[0] for line in table[4:]] == [
        f"problem: node 10.77.0.12 (host2): it does not see in {STORAGE} what the driver has written there",
        "problem: node 10.77.0.13: no answer within 30 s",
    ]


def test_as_json_a_node_is_a_finding_with_all_that_is_known_of_it(
    command: Command, address: str, cluster_of: Callable[..., None]
) -> None:
    cluster_of(FIRST, UNMOUNTED)
    rows = {row["part"]: row for row in json.loads(command("doctor", "-f", "json", "--address", address).out)}
    assert rows["cluster"]["state"] == "ok"
    well, ill = rows["node 10.77.0.11"], rows["node 10.77.0.12"]
    assert (well["state"], ill["state"]) == ("ok", "problem")
    assert well["details"]["view"]["report"]["versions"]["torch"] == "2.13.0+cpu"
    assert ill["remedy"].startswith("mount the shared storage there")


def test_what_nodes_have_in_common_is_one_line() -> None:
    open_node = replace(REPORT, token_mode="disabled")
    nodes = judge([replace(FIRST, report=open_node), replace(SECOND, report=open_node)], HERE, STORAGE)
    (line,) = problem_lines(nodes)
    assert line.startswith("note: node 10.77.0.11 (host2), node 10.77.0.12 (host2): it takes connections without")


def test_a_cluster_that_refuses_is_a_problem_with_its_own_remedy(
    command: Command, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(settings: Settings) -> list[ExaminedNode]:
        raise ClusterError("Ray at 10.0.0.1:6379 cannot be used: no token; set RAY_AUTH_MODE=token")

    monkeypatch.setattr(module, "examine_nodes", refuse)
    shown = command("doctor", "-f", "json", "--address", address)
    (row,) = (row for row in json.loads(shown.out) if row["part"] == "nodes")
    assert (row["state"], row["remedy"], shown.status) == ("problem", "set RAY_AUTH_MODE=token", 1)


def test_an_address_that_leads_to_no_nodes_is_told_with_a_remedy(command: Command) -> None:
    rows = json.loads(command("doctor", "-f", "json", "--address", "127.0.0.1:1").out)
    (row,) = (row for row in rows if row["part"] == "cluster")
    assert row["state"] == "problem"
    assert "check that it runs" in row["found"] + row["remedy"]
    assert "as the message says" not in row["remedy"]
