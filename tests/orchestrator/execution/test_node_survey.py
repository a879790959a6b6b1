"""Survey of a cluster's nodes: what is wrong with one, by its report; then two real nodes of this machine.

Run alone: pytest tests/orchestrator/execution/test_node_survey.py
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ray import cloudpickle

from orchestrator.execution import doctor as doctor_module
from orchestrator.execution.doctor import judge, versions
from tests.waiting import PATIENCE_S

HERE = {"python": "3.11.7", "ray": "2.60.0", "torch": "2.13.0+cpu", "sources": "ab12ab12ab12"}
REPORT = {"versions": HERE, "asks_for_token": True, "storage_error": "", "free_disk_bytes": 812 << 30}
ON_TWO_NODES = """
import json, os, signal, sys
import ray
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.cluster_utils import Cluster
from orchestrator.execution.doctor import survey_nodes
from orchestrator.base.settings import Settings
from tests.waiting import wait_until

def is_taken():
    status = get_cluster_status(cluster.address)
    return not any(node.available_resources().get("CPU") for node in (*status.active_nodes, *status.idle_nodes))

def tell(timeout_s):
    rows, findings = survey_nodes(settings, timeout_s)
    print(json.dumps([rows, [(finding.part, finding.state, finding.found) for finding in findings]]))
    return "memory" in rows[0]

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
try:
    second = cluster.add_node(num_cpus=1)
    settings = Settings.from_options(storage=sys.argv[1], address=cluster.address, environ={})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    ray.get(ray.util.placement_group([{"CPU": 1}] * 2).ready())
    wait_until(is_taken, "a CPU is told to be free that is not")  # nodes report it a little later
    tell(float(sys.argv[2]))
    (raylet,) = (started.process.pid for started in second.all_processes["raylet"])
    timeout_s, is_looked_at = 3.0, False
    while not is_looked_at:  # on a busy machine the other node may need longer
        os.kill(raylet, signal.SIGSTOP)
        is_looked_at = tell(timeout_s)
        os.kill(raylet, signal.SIGCONT)
        timeout_s *= 2
finally:
    ray.shutdown()
    cluster.shutdown()
"""
WITHOUT_PACKAGE = """
import json, pathlib, pickle, sys
import ray
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder)]
sys.path = [folder for folder in sys.path if folder and not pathlib.Path(folder, "orchestrator").exists()]
look, versions = pickle.load(open(sys.argv[1], "rb"))
print(json.dumps(versions()))
"""


def test_a_node_like_the_drivers_is_well() -> None:
    assert not list(judge("node a", REPORT, HERE, "/srv/lab"))


@pytest.mark.parametrize(
    ("changes", "state", "names"),
    [
        ({"silence": "no answer within 30 s"}, "problem", "no answer"),
        ({"storage_error": "FileNotFoundError: not seen"}, "problem", "/srv/lab"),
        ({"asks_for_token": False}, "note", "token"),
        ({"free_disk_bytes": 4 << 30}, "note", "4.29 GB"),
        ({"versions": HERE | {"sources": "cd34"}}, "problem", "sources"),
        ({"versions": HERE | {"python": "3.12.1"}}, "problem", "python"),
        ({"versions": HERE | {"torch": ""}}, "problem", "torch"),
    ],
)
def test_each_fault_of_a_node_is_found_with_a_remedy(changes: dict[str, Any], state: str, names: str) -> None:
    (finding,) = judge("node a", REPORT | changes, HERE, "/srv/lab")
    assert (finding.part, finding.state) == ("node a", state)
    assert names in finding.found
    assert finding.remedy


def test_builds_for_cpus_and_gpus_are_the_same_version() -> None:
    assert not list(judge("node a", REPORT | {"versions": HERE | {"torch": "2.13.0+cu130"}}, HERE, "/srv/lab"))


@pytest.mark.heavy
def test_a_node_that_lacks_this_package_can_still_be_looked_at(tmp_path: Path) -> None:
    cloudpickle.register_pickle_by_value(doctor_module)
    try:
        (tmp_path / "look.pkl").write_bytes(cloudpickle.dumps((doctor_module.look, versions)))
    finally:
        cloudpickle.unregister_pickle_by_value(doctor_module)
    command = [sys.executable, "-c", WITHOUT_PACKAGE, str(tmp_path / "look.pkl")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    there, here = json.loads(done.stdout.splitlines()[-1]), versions()
    assert there["ray"] == here["ray"]
    assert there["sources"] != here["sources"]


@pytest.mark.ray
def test_busy_nodes_are_looked_at_and_a_frozen_one_holds_up_no_other(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ON_TWO_NODES, str(tmp_path), str(PATIENCE_S)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if line[:2] == "[["]
    (rows, found), (frozen_rows, frozen) = told[0], told[-1]
    for row in rows:
        assert (row["cpu"], row["storage_error"], row["versions"]) == ("0/1", "", versions())
        assert 0 < row["free_memory_bytes"] <= row["memory_bytes"]
    assert {state for _, state, _ in found} <= {"note"}
    assert ["memory" in row for row in frozen_rows] == [True, False]
    assert [said[:9] for _, state, said in frozen if state == "problem"] == ["no answer"]
    assert not list(tmp_path.iterdir()), "the markers are gone"
