"""Healing of a cluster that is kept up as docs/cluster.md says: what breaks comes back, until one command ends it all.

Alone: .venv/bin/pytest tests/hosts/test_healing.py
"""

import re
import shutil
from collections.abc import Iterator

import pytest

from tests.hosts.machines import ROOT, Machine, why_no_machines
from tests.hosts.ray_cluster import CLUSTER_FILE, RayCluster, started_cluster
from tests.hosts.tutorial import keep_up

pytestmark = [
    pytest.mark.ray,
    pytest.mark.hosts,
    pytest.mark.skipif(bool(why_no_machines()), reason=why_no_machines()),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with started_cluster(num_hosts=3) as cluster:
        cluster.wait_for_nodes()
        keep_up(cluster)
        yield cluster


def test_a_killed_node_comes_back_by_itself(cluster: RayCluster) -> None:
    before = cluster.wait_for_nodes()
    *_, host = cluster.site.hosts
    host.kill("raylet/raylet")
    assert_that_only_one_is_new(cluster, host, before)


@pytest.mark.slow
def test_a_host_that_was_switched_off_is_back_after_its_boot(cluster: RayCluster) -> None:
    before = cluster.wait_for_nodes()
    *_, host = cluster.site.hosts
    host.power_off()
    host.power_on()
    assert_that_only_one_is_new(cluster, host, before)


@pytest.mark.slow
def test_a_host_that_was_cut_off_is_back_when_its_cable_is(cluster: RayCluster) -> None:
    before = cluster.wait_for_nodes()
    _, host, _ = cluster.site.hosts
    host.link.cut()
    cluster.wait_for_loss(before[host.address])
    host.link.heal()
    assert_that_only_one_is_new(cluster, host, before)


@pytest.mark.slow
def test_a_head_whose_gcs_is_killed_is_back_and_the_workers_after_it(cluster: RayCluster) -> None:
    before = cluster.wait_for_nodes()
    cluster.head.kill("gcs/gcs_server")
    after = cluster.wait_for_nodes(without=before)
    assert not before.items() & after.items()


def test_one_command_stops_every_host(cluster: RayCluster) -> None:
    cluster.wait_for_nodes()
    said = cluster.control.run(f"orchestrator cluster down {CLUSTER_FILE}")
    assert [line.split() for line in said.splitlines()[-3:]] == [
        [host.address, "head" if host is cluster.head else "worker", "stopped"] for host in cluster.site.hosts
    ]
    for host in cluster.site.hosts:
        assert not [word for word in ("/site-packages/ray/", "ray::", "ray-node.sh") if host.processes(word)]
        assert host.run("crontab -l") == ""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("redis-server"), reason="redis-server is not installed")
def test_workers_outlive_a_gcs_that_has_its_tables_in_redis(cluster: RayCluster) -> None:
    take_the_option(cluster)
    before = cluster.wait_for_nodes()
    keep_up(cluster)
    cluster.head.kill("gcs/gcs_server")
    after = cluster.wait_for_nodes(without={cluster.head.address: before[cluster.head.address]})
    workers = [host.address for host in cluster.site.hosts[1:]]
    assert [after[worker] for worker in workers] == [before[worker] for worker in workers]


def assert_that_only_one_is_new(cluster: RayCluster, host: Machine, before: dict[str, str]) -> None:
    after = cluster.wait_for_nodes(without={host.address: before[host.address]})
    assert {**after, host.address: ""} == {**before, host.address: ""}, "other nodes were started anew"


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
