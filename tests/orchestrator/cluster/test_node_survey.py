"""Survey of a cluster's nodes: clocks, silent nodes, and two real nodes of this machine.

Run alone: pytest tests/orchestrator/cluster/test_node_survey.py
"""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cluster.doctor.node_survey import _raylet_state, best_clock
from tests.waiting import PATIENCE_S


def test_the_shortest_round_trip_decides_on_the_clock() -> None:
    ahead_s, uncertainty_s = best_clock([(0.0, 9.0, 4.0), (10.0, 15.5, 11.0), (20.0, 26.0, 23.0)])
    assert (ahead_s, uncertainty_s) == (5.0, 0.5)


def test_a_silent_nodes_raylet_is_looked_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        answers, state = _raylet_state("127.0.0.1", port)
        assert answers
        assert state.startswith(f"its raylet answers at 127.0.0.1:{port}, but")
    answers, state = _raylet_state("127.0.0.1", port)
    assert not answers
    assert state.startswith(f"its raylet cannot be reached at 127.0.0.1:{port} (Connection")


@pytest.mark.ray
def test_busy_nodes_are_looked_at_and_a_frozen_one_holds_up_no_other(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.orchestrator.cluster.doctor_on_nodes", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    both, frozen = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    for node in both:
        report, measured = node["view"]["report"], node["view"]["measured"]
        assert (report["sees_storage"], report["writes_storage"], measured["marker_arrived"]) == (True, True, True)
        assert abs(measured["clock_s"]) <= measured["clock_uncertainty_s"] + 0.001, "it is one machine"
        assert (node["view"]["total"]["CPU"], node["view"]["free"].get("CPU", 0.0)) == (1.0, 0.0)
        assert measured["link_problem"] == "", "it is one machine"
        assert node["view"]["num_at_address"] == 2
        assert all(finding["found"] and finding["remedy"] for finding in node["findings"])
    speeds = [node["view"]["measured"]["bytes_per_s"] for node in both]
    assert speeds[0] is None, "the driver's node comes first, and gets nothing from itself"
    assert speeds[1] > 0
    assert frozen[0]["view"]["report"] is not None
    assert frozen[1]["view"]["report"] is None
    assert frozen[1]["view"]["silence"].startswith("no answer within 3 s; its raylet answers at ")
    assert frozen[1]["state"] == "problem"
    assert not list(tmp_path.iterdir()), "the markers are gone"
