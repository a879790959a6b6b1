"""The tutorial docs/cluster.md, executed word by word: a model, its record, and the end of the cluster.

Alone: .venv/bin/pytest tests/hosts/test_tutorial.py
"""

from collections.abc import Iterator

import pytest

from tests.hosts.machines import Site, why_no_machines
from tests.hosts.tutorial import NUM_HOSTS, PAGE, Reader, blocks_of, prepared_site

BLOCKS = blocks_of(PAGE, NUM_HOSTS)
on_hosts = [
    pytest.mark.ray,
    pytest.mark.hosts,
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_no_machines()), reason=why_no_machines()),
]


def test_the_page_can_be_followed_with_fewer_hosts() -> None:
    blocks = "".join(text for _, text in blocks_of(PAGE, 2))
    assert "worker_ips: [192.0.2.11]\n" in blocks
    assert "for host in 192.0.2.10 192.0.2.11; do" in blocks
    assert "until it says: 2 local.cluster.node" in blocks
    assert "192.0.2.12" not in blocks


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with prepared_site(NUM_HOSTS) as site:
        yield site


@pytest.fixture(scope="module")
def reader(site: Site) -> Iterator[Reader]:
    """Has followed the page up to its last block, which ends the cluster."""
    reader = Reader(site)
    try:
        for kind, text in BLOCKS[:-1]:
            reader.follow(kind, text)
        yield reader
    finally:
        reader.close()


class TestOnHosts:
    """The page on four hosts that are network namespaces."""

    pytestmark = on_hosts

    def test_the_page_ends_with_a_model_and_its_record(self, reader: Reader) -> None:
        runs = next(said for said in reader.said if "COMPLETED" in said)
        assert "pretrain_tiny_wikipedia" in runs

    def test_the_last_command_stops_every_host_for_good(self, reader: Reader, site: Site) -> None:
        reader.follow(*BLOCKS[-1])
        assert reader.said[-1].count("stopped") == NUM_HOSTS
        for host in site.hosts:
            assert not host.processes("raylet/raylet")
            assert host.run("crontab -l") == ""
