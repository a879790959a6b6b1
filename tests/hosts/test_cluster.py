"""A cluster of three hosts by `ray up`: all join, a job spreads, what is killed comes back, everything ends.

Alone: .venv/bin/pytest tests/hosts/test_cluster.py
"""

import time
from collections.abc import Iterator

import pytest

from tests.hosts.machines import why_no_machines
from tests.hosts.ray_cluster import CLUSTER_FILE, DASHBOARD, RayCluster, opened_dashboard, started_cluster

pytestmark = [
    pytest.mark.ray,
    pytest.mark.hosts,
    pytest.mark.skipif(bool(why_no_machines()), reason=why_no_machines()),
]
SPREAD_JOB = """
import ray, socket
@ray.remote(num_cpus=2, scheduling_strategy="SPREAD")
def name():
    import time; time.sleep(1)
    return socket.gethostname()
ray.init()
print("ran on", sorted(set(ray.get([name.remote() for _ in range(2)]))))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with started_cluster(num_hosts=3) as cluster:
        yield cluster


def test_every_host_joins(cluster: RayCluster) -> None:
    assert cluster.wait_for_nodes().keys() == {host.address for host in cluster.site.hosts}


def test_a_job_from_the_control_machine_runs_on_two_hosts(cluster: RayCluster) -> None:
    cluster.wait_for_nodes()
    (cluster.control.disk / "root" / "job").mkdir(exist_ok=True)
    (cluster.control.disk / "root" / "job" / "spread.py").write_text(SPREAD_JOB)
    with opened_dashboard(cluster.control):
        said = cluster.control.run(f"ray job submit --address {DASHBOARD} --working-dir ~/job -- python spread.py")
    assert "ran on ['host" in said
    assert said.rpartition("ran on")[2].count("host") == 2


def test_a_killed_node_comes_back_by_itself(cluster: RayCluster) -> None:
    before = cluster.wait_for_nodes()
    worker = cluster.site.hosts[-1]
    for process in worker.processes("raylet/raylet"):
        process.kill()
    began = time.monotonic()
    after = cluster.wait_for_nodes(without={worker.address: before[worker.address]})
    assert after[worker.address] != before[worker.address]
    assert {**after, worker.address: ""} == {**before, worker.address: ""}, "other nodes were started anew"
    print(f"back after {time.monotonic() - began:.0f} s")


def test_one_command_stops_every_host(cluster: RayCluster) -> None:
    cluster.wait_for_nodes()
    said = cluster.control.run(f"orchestrator cluster down {CLUSTER_FILE}")
    assert [line.split() for line in said.splitlines()[-3:]] == [
        [host.address, "head" if host is cluster.head else "worker", "stopped"] for host in cluster.site.hosts
    ]
    for host in cluster.site.hosts:
        assert not [word for word in ("/site-packages/ray/", "ray::", "node_monitor.py") if host.processes(word)]
        assert host.run("crontab -l") == ""
