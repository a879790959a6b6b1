"""Healing of a cluster, as docs/cluster.md promises it: what breaks comes back without anybody's doing.

Alone: .venv/bin/pytest tests/hosts/test_healing.py
"""

import re
import shutil
from collections.abc import Iterator

import pytest

from tests.hosts.machines import ROOT, why_no_machines
from tests.hosts.ray_cluster import CLUSTER_FILE, RayCluster, started_cluster

pytestmark = [
    pytest.mark.ray,
    pytest.mark.hosts,
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_no_machines()), reason=why_no_machines()),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with started_cluster(num_hosts=3) as cluster:
        yield cluster


def test_a_host_that_was_switched_off_is_back_after_its_boot(cluster: RayCluster) -> None:
    before = cluster.wait_for_nodes()
    *_, host = cluster.site.hosts
    host.power_off()
    host.power_on()
    after = cluster.wait_for_nodes(without={host.address: before[host.address]})
    assert {**after, host.address: ""} == {**before, host.address: ""}, "other nodes were started anew"


def test_a_host_that_was_cut_off_is_back_when_its_cable_is(cluster: RayCluster) -> None:
    before = cluster.wait_for_nodes()
    _, host, _ = cluster.site.hosts
    host.link.cut()
    cluster.wait_for_loss(before[host.address])
    host.link.heal()
    after = cluster.wait_for_nodes(without={host.address: before[host.address]})
    assert {**after, host.address: ""} == {**before, host.address: ""}, "other nodes were started anew"


def test_a_head_whose_gcs_is_killed_is_back_and_the_workers_after_it(cluster: RayCluster) -> None:
    before = cluster.wait_for_nodes()
    kill_gcs(cluster)
    after = cluster.wait_for_nodes(without=before)
    assert not before.items() & after.items()


def test_ray_stop_ends_the_monitor_before_it_brings_ray_back(cluster: RayCluster) -> None:
    cluster.wait_for_nodes()
    *_, host = cluster.site.hosts
    host.run("ray stop")
    assert not host.processes("node_monitor.py boot")
    assert not host.processes("raylet/raylet")


@pytest.mark.skipif(not shutil.which("redis-server"), reason="redis-server is not installed")
def test_workers_outlive_a_gcs_that_has_its_tables_in_redis(cluster: RayCluster) -> None:
    take_the_option(cluster)
    before = cluster.wait_for_nodes()
    kill_gcs(cluster)
    after = cluster.wait_for_nodes(without={cluster.head.address: before[cluster.head.address]})
    workers = [host.address for host in cluster.site.hosts[1:]]
    assert [after[worker] for worker in workers] == [before[worker] for worker in workers]


def kill_gcs(cluster: RayCluster) -> None:
    (gcs,) = cluster.head.processes("gcs/gcs_server")
    gcs.kill()


def take_the_option(cluster: RayCluster) -> None:
    """End the cluster, start a Redis as the page says, take the line marked OPTION, and `ray up` again."""
    cluster.control.run(f"orchestrator cluster down {CLUSTER_FILE}")
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    (redis,) = re.findall(r"`(redis-server .*?)`", page)
    cluster.head.run("mkdir ~/redis")
    cluster.head.start(redis.replace("FOLDER", "~/redis"))
    file = cluster.control.disk / "root" / "lab" / CLUSTER_FILE
    text, count = re.subn(r"(?m)^  # - ", "  - ", file.read_text())
    assert count == 1
    file.write_text(text)
    cluster.up()
