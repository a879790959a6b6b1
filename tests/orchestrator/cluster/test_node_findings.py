"""Findings on nodes of a cluster from their reports, each with a remedy of its own. No Ray.

Run alone: pytest tests/orchestrator/cluster/test_node_findings.py
"""

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.cluster.doctor.node_findings import ExaminedNode, judge
from orchestrator.cluster.doctor.node_report import NodeView
from tests.orchestrator.cluster.node_reports import FIRST, HERE, MEASURED, REPORT, SECOND, SILENT

STORAGE = "/srv/lab/storage"


def judged(view: NodeView) -> ExaminedNode:
    """The node's place among two, judged."""
    first, second = judge([FIRST, view], HERE, STORAGE)
    assert (first.state, first.findings) == ("ok", ())
    return second


def test_a_node_like_the_drivers_is_well() -> None:
    assert judged(SECOND).state == "ok"


@pytest.mark.parametrize(
    ("changes", "state", "found", "remedy"),
    [
        pytest.param(
            {"sees_storage": False},
            "problem",
            f"not see in {STORAGE} what the driver",
            "mount the shared",
            id="no storage",
        ),
        pytest.param(
            {"writes_storage": False, "storage_error": "read-only"},
            "problem",
            "cannot write .*: read-only",
            "user that",
            id="storage read-only",
        ),
        pytest.param(
            {"writes_storage": False, "storage_error": "OSError: [Errno 28] No space left on device"},
            "problem",
            "No space left",
            "whether the storage is full",
            id="storage full",
        ),
        pytest.param({"token_mode": "disabled"}, "note", "without a token", "RAY_AUTH_MODE=token", id="no token"),
        pytest.param(
            {"gloo_interface": "lo", "gloo_address": "127.0.1.1"},
            "problem",
            r"127\.0\.1\.1 \(lo\)",
            "GLOO_SOCKET_IFNAME=",
            id="loopback for Gloo",
        ),
        pytest.param(
            {"gloo_address": "", "gloo_error": "is eth9, and there is none"},
            "problem",
            "eth9",
            "ip -brief address",
            id="no such interface",
        ),
        pytest.param(
            {"free_disk_bytes": 4 << 30, "disk_bytes": 64 << 30},
            "note",
            r"4\.0 GiB free where Ray spills",
            "--temp-dir",
            id="little disk",
        ),
        pytest.param(
            {"free_disk_bytes": 0},
            "problem",
            r"0\.0 GiB .* Ray spills nothing to it",
            "--temp-dir",
            id="disk full",
        ),
        pytest.param(
            {"free_disk_bytes": 40 << 30},
            "problem",
            r"40\.0 GiB free .* Ray spills nothing to it",
            "--temp-dir",
            id="large disk full",
        ),
        pytest.param(
            {"versions": replace(HERE, digest="")}, "problem", "not installed there", "pip install", id="no package"
        ),
        pytest.param(
            {"versions": replace(HERE, digest="cd34")},
            "problem",
            "sources cd34, the driver has 0.9.0 with ab12",
            "checkout",
            id="other sources",
        ),
        pytest.param(
            {"versions": replace(HERE, package="0.8.0")},
            "problem",
            "in version 0.8.0 .* the driver has 0.9.0",
            "checkout",
            id="other version",
        ),
        pytest.param(
            {"versions": replace(HERE, python="3.12.1")},
            "problem",
            "python 3.12.1, the driver has 3.11.7",
            "constraints.txt",
            id="other Python",
        ),
        pytest.param(
            {"versions": replace(HERE, ray="2.59.0")},
            "problem",
            "ray 2.59.0, the driver has 2.60.0",
            "constraints.txt",
            id="other Ray",
        ),
        pytest.param(
            {"versions": replace(HERE, torch="")}, "problem", "torch not at all", "constraints.txt", id="no torch"
        ),
    ],
)
def test_each_fault_of_a_node_is_found_with_its_remedy(
    changes: Mapping[str, object], state: str, found: str, remedy: str
) -> None:
    node = judged(replace(SECOND, report=replace(REPORT, **changes)))  # type: ignore[arg-type]
    assert_one(node, state, found, remedy)


@pytest.mark.parametrize(
    ("changes", "state", "found", "remedy"),
    [
        pytest.param(
            {"clock_s": -3.0}, "note", r"3\.0 s ± 0\.0 s behind the driver's", "timedatectl", id="clock behind"
        ),
        pytest.param(
            {"clock_s": 400.0},
            "problem",
            r"400\.0 s ± 0\.0 s ahead of the driver's",
            "timedatectl",
            id="clock far ahead",
        ),
        pytest.param(
            {"bytes_per_s": 11e6}, "note", "11 MB/s .* about 40 s in each step", "faster network", id="slow network"
        ),
        pytest.param(
            {"transfer_problem": "did not arrive"}, "problem", "did not arrive", "all ports", id="objects do not arrive"
        ),
        pytest.param(
            {"marker_arrived": False},
            "problem",
            "the driver does not see in /srv/lab/storage",
            "same server",
            id="another storage",
        ),
        pytest.param(
            {"link_problem": "10.77.0.11 does not reach them there (another host answers)"},
            "problem",
            r"would listen at 10\.77\.0\.12 \(enp0s31f6\): 10\.77\.0\.11 does not reach them",
            "GLOO_SOCKET_IFNAME=INTERFACE, the one that has 10.77.0.12",
            id="address of another network",
        ),
    ],
)
def test_each_fault_between_driver_and_node_is_found_with_its_remedy(
    changes: Mapping[str, object], state: str, found: str, remedy: str
) -> None:
    node = judged(replace(SECOND, measured=replace(MEASURED, **changes)))  # type: ignore[arg-type]
    assert_one(node, state, found, remedy)


def assert_one(node: ExaminedNode, state: str, found: str, remedy: str) -> None:
    """Check that a node has one finding, and what it says."""
    (finding,) = node.findings
    assert (node.state, finding.part) == (state, "node 10.77.0.12 (host2)")
    assert re.search(found, finding.found)
    assert remedy in finding.remedy


def test_a_clock_that_may_be_right_is_not_told() -> None:
    assert judged(replace(SECOND, measured=replace(MEASURED, clock_s=3.0, clock_uncertainty_s=1.5))).state == "ok"


def test_builds_for_cpus_and_gpus_are_the_same_version() -> None:
    versions = replace(HERE, torch="2.13.0+cu130")
    assert judged(replace(SECOND, report=replace(REPORT, versions=versions))).state == "ok"


def test_a_node_that_does_not_answer_is_a_problem() -> None:
    node = judged(SILENT)
    (finding,) = node.findings
    assert (node.state, finding.part, finding.found) == ("problem", "node 10.77.0.13", "no answer within 30 s")
    assert "ray stop" in finding.remedy
    assert "--node-ip-address" not in finding.remedy


def test_a_node_at_an_address_that_the_driver_does_not_reach_is_told_to_name_another() -> None:
    node = judged(replace(SILENT, silence="its raylet cannot be reached at 10.77.0.13:4001", raylet_answers=False))
    (finding,) = node.findings
    assert "--node-ip-address where the other hosts reach it at another address than 10.77.0.13" in finding.remedy


def test_a_host_on_which_ray_was_started_twice_is_told() -> None:
    node = judged(replace(SECOND, num_at_address=2))
    assert_one(node, "note", "2 Ray nodes run on this host", "ray start once")


def test_the_loopback_is_good_enough_for_a_single_host() -> None:
    alone = replace(FIRST, report=replace(REPORT, gloo_interface="lo", gloo_address="127.0.0.1"))
    (node,) = judge([alone], HERE, STORAGE)
    assert node.state == "ok"
