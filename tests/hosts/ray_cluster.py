"""A cluster of `ray up` on the hosts of a site, made from cluster.local.yaml as a person would make it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.hosts.machines import Machine, Site, started_site
from tests.waiting import wait_until

CLUSTER_FILE = "cluster.local.yaml"
DASHBOARD = "http://127.0.0.1:8265"
TESTS_WANT = "export RAY_worker_niceness=0 RAY_AUTH_MODE=token\n"
"""Lines of ~/.profile: Ray's workers are as nice as other processes, so that a busy machine does not starve them."""
NODES = f"""
import json, urllib.request
from pathlib import Path
token = (Path.home() / ".ray" / "auth_token").read_text().strip()
request = urllib.request.Request("{DASHBOARD}/api/v0/nodes", headers={{"Authorization": "Bearer " + token}})
try:
    rows = json.load(urllib.request.urlopen(request, timeout=10))["data"]["result"]["result"]
except OSError:
    rows = []
print(json.dumps({{row["node_id"]: row["node_ip"] for row in rows if row["state"] == "ALIVE"}}))
"""


@dataclass(frozen=True)
class RayCluster:
    """A cluster that is up; its first host is the head."""

    site: Site

    @property
    def head(self) -> Machine:
        """The host where the GCS and drivers run."""
        return self.site.hosts[0]

    @property
    def control(self) -> Machine:
        """The machine that a person works at."""
        return self.site.control

    def wait_for_nodes(self, *, without: dict[str, str] | None = None) -> dict[str, str]:
        """Wait until each host has a node that lives.

        Args:
            without: ids of nodes that do not count, by address.

        Returns:
            Id of the node at each address.
        """
        wanted, gone = {host.address for host in self.site.hosts}, set((without or {}).values())
        there: dict[str, str] = {}

        def all_are_there() -> bool:
            there.clear()
            there.update((address, node) for node, address in self.nodes().items() if node not in gone)
            return there.keys() == wanted

        wait_until(all_are_there, "hosts are missing")
        return there

    def wait_for_loss(self, node: str) -> None:
        """Wait until a node counts as dead."""
        wait_until(lambda: node not in self.nodes(), "a lost node counts as alive")

    def nodes(self) -> dict[str, str]:
        """Address of each node that counts as alive; empty where the head does not answer."""
        nodes: dict[str, str] = json.loads(self.head.run(f"~/venv/bin/python -c '{NODES}'"))
        return nodes

    def up(self) -> None:
        """Bring the cluster up, or bring it to what the cluster file says now."""
        self.control.run(f"RAY_UP_enable_autoscaler_v2=0 ray up -y {CLUSTER_FILE}")


def edit_cluster_file(text: str, values: dict[str, str]) -> str:
    """Fill in a cluster file: the value of a key in a line marked CHANGE; no other line is touched."""
    for key, value in values.items():
        text, count = re.subn(rf"(?m)^( *{key}: )\S.*?( +# CHANGE.*)$", rf"\g<1>{value}\2", text)
        assert count == 1, f"{key} is in no line marked CHANGE, or in several"
    return text


def prepare(site: Site, edited: str) -> None:
    """Do what comes before `ray up`: the file, the token, and a key that all hosts let in."""
    control = site.control
    for machine in (control, *site.hosts):
        machine.add_to_profile(TESTS_WANT)
    (control.disk / "root" / "lab" / CLUSTER_FILE).write_text(edited)
    control.run("(umask 077 && ray get-auth-token --generate > /dev/null)")
    control.run("ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/bert-lab")
    for host in site.hosts:
        control.run(f"ssh-copy-id -i ~/.ssh/bert-lab.pub root@{host.address}")


@contextmanager
def started_cluster(num_hosts: int) -> Iterator[RayCluster]:
    """Start a cluster on so many hosts, the head among them; it ends with the block."""
    with started_site(num_hosts) as site:
        head, *workers = [host.address for host in site.hosts]
        text = (site.control.disk / "root" / "lab" / CLUSTER_FILE).read_text()
        prepare(
            site,
            edit_cluster_file(text, {"head_ip": head, "worker_ips": f"[{', '.join(workers)}]", "ssh_user": "root"}),
        )
        cluster = RayCluster(site)
        cluster.up()
        yield cluster


@contextmanager
def opened_dashboard(control: Machine) -> Iterator[None]:
    """Keep the tunnel to the head's dashboard open, as a second terminal with `ray dashboard` does."""
    tunnel = control.start(f"exec ray dashboard {CLUSTER_FILE}")
    try:
        wait_for_dashboard(control)
        yield
    finally:
        tunnel.end()


def wait_for_dashboard(control: Machine) -> None:
    """Wait until the tunnel is open."""
    port = DASHBOARD.rpartition(":")[2]
    control.run(f"until (: > /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do sleep 0.5; done")
