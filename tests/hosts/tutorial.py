"""The tutorial docs/cluster.md, followed on hosts of a site: block by block, word by word."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tests.hosts.machines import ROOT, Command, Machine, Site, started_site
from tests.hosts.ray_cluster import CLUSTER_FILE, TESTS_WANT, RayCluster, edit_cluster_file, wait_for_dashboard
from tests.hosts.submitted_run import write_text
from tests.waiting import wait_until

PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
NUM_HOSTS = 4
"""Hosts of the page."""
LEFT_OPEN = "# in a second terminal, left open\n"
AGAIN = "# again, until it says: "
USER = {"lab@": "root@", "ssh_user: lab": "ssh_user: root"}
"""The hosts' one user is root."""
_ADDRESS = "192.0.2.{}"
_FIRST = 10


def blocks_of(page: str, num_hosts: int) -> list[tuple[str, str]]:
    """Blocks of a page for a person who has so many hosts: (`bash` or `yaml`, text). The page itself has four."""
    addresses = [_ADDRESS.format(_FIRST + number) for number in range(NUM_HOSTS)]
    changed = {
        " ".join(addresses): " ".join(addresses[:num_hosts]),
        " ".join(addresses[1:]): " ".join(addresses[1:num_hosts]),
        ", ".join(addresses[1:]): ", ".join(addresses[1:num_hosts]),
        f"{NUM_HOSTS} local.cluster.node": f"{num_hosts} local.cluster.node",
        **USER,
    }
    for theirs, ours in changed.items():
        assert theirs in page, f"the page does not have {theirs!r} any more"
        page = page.replace(theirs, ours)
    return re.findall(r"```(bash|yaml)\n(.*?)```", page, re.DOTALL)


class Reader:
    """A person who does what the page says, at the control machine."""

    def __init__(self, site: Site) -> None:
        self.control: Machine = site.control
        self.said: list[str] = []
        """Output of each command."""
        self._second_terminal: Command | None = None

    def follow(self, kind: str, text: str) -> None:
        """Do what one block of the page asks for."""
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


@contextmanager
def prepared_site(num_hosts: int) -> Iterator[Site]:
    """Make hosts, and the text that the page's reader has; nothing of them is left after the block."""
    with started_site(num_hosts) as site:
        for machine in (site.control, *site.hosts):
            machine.add_to_profile(TESTS_WANT)
        write_text(site.control.disk / "root" / "lab" / "data" / "pretrain")
        yield site


def keep_up(cluster: RayCluster) -> None:
    """Let each host bring its Ray back, as the page says it for hosts without systemd."""
    (block,) = [text for _, text in blocks_of(PAGE, len(cluster.site.hosts)) if "ray-node.sh" in text]
    cluster.control.run(block)
