"""The tutorial docs/cluster.md, executed word by word on four hosts: a model, its record, and the end of the cluster.

Alone: .venv/bin/pytest tests/hosts/test_tutorial.py
"""

import re
from collections.abc import Iterator

import pytest

from tests.hosts.machines import ROOT, Command, Machine, Site, started_site, why_no_machines
from tests.hosts.ray_cluster import CLUSTER_FILE, TESTS_WANT, edit_cluster_file, wait_for_dashboard
from tests.hosts.submitted_run import write_text
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.ray,
    pytest.mark.hosts,
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_no_machines()), reason=why_no_machines()),
]
PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(bash|yaml)\n(.*?)```", PAGE, re.DOTALL)
LEFT_OPEN = "# in a second terminal, left open\n"
AGAIN = "# again, until it says: "
USER = {"lab@": "root@", "ssh_user: lab": "ssh_user: root"}
"""The hosts' one user is root."""


class Reader:
    """A person who does what the page says, at the control machine."""

    def __init__(self, site: Site) -> None:
        self.control: Machine = site.control
        self.said: list[str] = []
        """Output of each command."""
        self._second_terminal: Command | None = None

    def follow(self, kind: str, text: str) -> None:
        """Do what one block of the page asks for."""
        for theirs, ours in USER.items():
            text = text.replace(theirs, ours)
        if kind == "yaml":
            self._edit(dict(re.findall(r"(\w+): (.+)", text)))
        elif text.startswith(LEFT_OPEN):
            self._second_terminal = self.control.start(f"exec {text.removeprefix(LEFT_OPEN)}")
            wait_for_dashboard(self.control)
        elif text.startswith(AGAIN):
            wanted, _, command = text.removeprefix(AGAIN).partition("\n")
            wait_until(lambda: wanted in self._run(command), f"{command} never says {wanted}")
        else:
            self._run(text)

    def close(self) -> None:
        """Close the second terminal."""
        if self._second_terminal:
            self._second_terminal.end()

    def _run(self, command: str) -> str:
        self.said.append(self.control.run(command))
        return self.said[-1]

    def _edit(self, values: dict[str, str]) -> None:
        file = self.control.disk / "root" / "lab" / CLUSTER_FILE
        file.write_text(edit_cluster_file(file.read_text(), values))


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(num_hosts=4) as site:
        for machine in (site.control, *site.hosts):
            machine.add_to_profile(TESTS_WANT)
        write_text(site.control.disk / "root" / "lab" / "data" / "pretrain")
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


def test_the_page_ends_with_a_model_and_its_record(reader: Reader) -> None:
    runs = next(said for said in reader.said if "COMPLETED" in said)
    assert "pretrain_tiny_wikipedia" in runs
    assert "ray_process_exit.log" in reader.said[-1], "the monitor's log is not shown"


def test_the_last_command_stops_every_host_for_good(reader: Reader, site: Site) -> None:
    reader.follow(*BLOCKS[-1])
    assert reader.said[-1].count("stopped") == 4
    for host in site.hosts:
        assert not host.processes("raylet/raylet")
        host.power_off()
        host.power_on()
        assert not host.processes("node_monitor")
