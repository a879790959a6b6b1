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
        (
            {"sees_storage": False},
            "problem",
            "does not see in /srv/lab/storage what the driver has",
            "mount the shared",
        ),
        ({"writes_storage": False, "storage_error": "read-only"}, "problem", "cannot write .*: read-only", "user that"),
        ({"token_mode": "disabled"}, "note", "without a token", "RAY_AUTH_MODE=token"),
        (
            {"gloo_interface": "lo", "gloo_address": "127.0.1.1"},
            "problem",
            r"127\.0\.1\.1 \(lo\)",
            "GLOO_SOCKET_IFNAME=",
        ),
        ({"gloo_address": "", "gloo_error": "is eth9, and there is none"}, "problem", "eth9", "ip -brief address"),
        ({"free_disk_bytes": 1 << 30}, "note", r"1\.0 GiB free where Ray spills", "--temp-dir"),
        ({"versions": replace(HERE, digest="")}, "problem", "not installed there", "pip install"),
        (
            {"versions": replace(HERE, digest="cd34")},
            "problem",
            "sources cd34, the driver has 0.9.0 with ab12",
            "checkout",
        ),
        ({"versions": replace(HERE, ray="2.59.0")}, "problem", "ray 2.59.0, the driver has 2.60.0", "constraints.txt"),
        ({"versions": replace(HERE, torch="")}, "problem", "torch not at all", "constraints.txt"),
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
        ({"clock_s": -3.0}, "note", r"3\.0 s ± 0\.0 s behind the driver's", "timedatectl"),
        ({"clock_s": 400.0}, "problem", r"400\.0 s ± 0\.0 s ahead of the driver's", "timedatectl"),
        ({"bytes_per_s": 11e6}, "note", "11 MB/s .* about 40 s in each step", "faster network"),
        ({"transfer_problem": "did not arrive"}, "problem", "did not arrive", "all ports"),
        ({"marker_arrived": False}, "problem", "the driver does not see in /srv/lab/storage", "same server"),
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


def test_the_loopback_is_good_enough_for_a_single_host() -> None:
    alone = replace(FIRST, report=replace(REPORT, gloo_interface="lo", gloo_address="127.0.0.1"))
    (node,) = judge([alone], HERE, STORAGE)
    assert node.state == "ok"
