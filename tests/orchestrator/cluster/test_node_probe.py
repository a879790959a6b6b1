"""Probe of a node, in this process and in one that lacks this package. No cluster.

Run alone: pytest tests/orchestrator/cluster/test_node_probe.py
"""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cluster.doctor import node_probe
from orchestrator.cluster.doctor.node_probe import NodeProbe, gloo_device, source_digest
from orchestrator.cluster.doctor.node_report import NodeReport
from tests.waiting import PATIENCE_S

WITHOUT_PACKAGE = """
import json, pathlib, pickle, sys
import ray
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder)]
sys.path = [folder for folder in sys.path if folder and not pathlib.Path(folder, "orchestrator").exists()]
probe = pickle.load(open(sys.argv[1], "rb"))()
print(json.dumps(probe.look(sys.argv[2], "driver", "own")))
"""


def look(folder: Path) -> NodeReport:
    return NodeReport.from_values(NodeProbe().look(str(folder), "driver", "own"))


def test_a_marker_of_the_driver_is_read_back_and_one_of_the_nodes_is_left(tmp_path: Path) -> None:
    (tmp_path / "driver").write_text("driver")
    report = look(tmp_path)
    assert (report.sees_storage, report.writes_storage, report.storage_error) == (True, True, "")
    assert (tmp_path / "own").read_text() == "own"


def test_a_host_without_the_storage_leaves_nothing_there(tmp_path: Path) -> None:
    report = look(tmp_path / "missing")
    assert (report.sees_storage, report.writes_storage, report.storage_error) == (False, False, "")
    assert not (tmp_path / "missing").exists()


def test_versions_and_resources_of_this_machine_are_told(tmp_path: Path) -> None:
    report = look(tmp_path)
    assert report.host == socket.gethostname()
    assert report.versions.ray.startswith("2.60.")
    assert len(report.versions.digest) == 12
    assert 0 < report.free_memory_bytes <= report.memory_bytes
    assert 0 < report.free_disk_bytes <= report.disk_bytes


def test_a_caller_learns_which_node_listens_at_an_address_and_why_none_does() -> None:
    probe = NodeProbe()
    port = probe.listen("127.0.0.1", "this node")
    assert [probe.call("127.0.0.1", port, PATIENCE_S) for _ in range(2)] == [("this node", "")] * 2
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free_port = closed.getsockname()[1]
    assert probe.call("127.0.0.1", free_port, PATIENCE_S) == ("", "Connection refused")


def test_a_changed_source_file_changes_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in node_probe.PACKAGES:
        (tmp_path / f"copy_of_{package}").mkdir()
        (tmp_path / f"copy_of_{package}" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(node_probe, "PACKAGES", [f"copy_of_{package}" for package in node_probe.PACKAGES])
    before = source_digest()
    (tmp_path / "copy_of_orchestrator" / "__init__.py").write_text("1")
    assert before != source_digest() != ""


def test_gloo_takes_the_interface_that_the_variable_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert gloo_device() == ("lo", "127.0.0.1", "")


def test_an_interface_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth99")
    interface, address, error = gloo_device()
    assert (interface, address) == ("eth99", "")
    assert error == "GLOO_SOCKET_IFNAME is eth99, and there is no such interface with an address"


def test_gloo_takes_the_host_names_address_or_else_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(node_probe, "_addresses_of_host_name", lambda: ["203.0.113.7", "127.0.0.2"])
    monkeypatch.setattr(node_probe, "_can_bind", lambda address: address == "127.0.0.2")
    monkeypatch.setattr(node_probe, "_interface_addresses", lambda: {"lo": ["127.0.0.1"], "eth0": ["127.0.0.2"]})
    assert gloo_device() == ("eth0", "127.0.0.2", "")
    monkeypatch.setattr(node_probe, "_addresses_of_host_name", lambda: ["203.0.113.7"])
    assert gloo_device() == ("lo", "127.0.0.1", "")


def test_a_node_that_lacks_this_package_can_still_be_looked_at(tmp_path: Path) -> None:
    from ray import cloudpickle

    (tmp_path / "driver").write_text("driver")
    cloudpickle.register_pickle_by_value(node_probe)
    try:
        (tmp_path / "probe.pkl").write_bytes(cloudpickle.dumps(NodeProbe))
    finally:
        cloudpickle.unregister_pickle_by_value(node_probe)
    command = [sys.executable, "-c", WITHOUT_PACKAGE, str(tmp_path / "probe.pkl"), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    report = NodeReport.from_values(json.loads(done.stdout.splitlines()[-1]))
    assert report.versions.digest == ""
    assert (report.sees_storage, report.storage_error) == (
        False,
        "ModuleNotFoundError: No module named 'orchestrator'",
    )
