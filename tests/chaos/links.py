"""Network links of Ray nodes on this machine: a namespace for each, and one bridge, whose ports can be cut.

Making them needs Linux, root and iproute2. Nothing leads from the bridge to the outside.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True)
class Link:
    """A namespace whose one interface, eth0, leads to a port of the bridge."""

    namespace: str
    port: str
    address: str
    bridge: str

    def cut(self) -> None:
        """Pull the cable: packets vanish, and nobody is told."""
        _ip("link", "set", self.port, "nomaster")

    def heal(self) -> None:
        """Put the cable into the bridge."""
        _ip("link", "set", self.port, "master", self.bridge)

    def enter(self, command: list[str]) -> list[str]:
        """The command that runs another one in the namespace; files are the same in there."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *command]


class Links:
    """A bridge of this process's own, which is the address of the machine for the namespaces."""

    def __init__(self) -> None:
        self._bridge = f"br{os.getpid()}"
        self._network = f"10.79.{os.getpid() % 256}"
        self.address = f"{self._network}.1"
        self._numbers = count(2)
        self._namespaces: list[str] = []
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    def add(self) -> Link:
        """Make a namespace and its link."""
        number = next(self._numbers)
        link = Link(
            f"chaos{os.getpid()}n{number}", f"v{os.getpid()}n{number}", f"{self._network}.{number}", self._bridge
        )
        inside = ("-n", link.namespace)
        _ip("netns", "add", link.namespace)
        self._namespaces.append(link.namespace)
        _ip("link", "add", link.port, "type", "veth", "peer", "name", "eth0", "netns", link.namespace)
        _ip(*inside, "addr", "add", f"{link.address}/24", "dev", "eth0")
        for name in ("lo", "eth0"):
            _ip(*inside, "link", "set", name, "up")
        _ip("link", "set", link.port, "up")
        link.heal()
        return link

    def close(self) -> None:
        """Take bridge and namespaces away; a link goes with its namespace."""
        for namespace in self._namespaces:
            _ip("netns", "del", namespace)
        _ip("link", "del", self._bridge)


def can_be_made() -> bool:
    """Whether this machine allows namespaces to this user."""
    return os.geteuid() == 0 and all(map(shutil.which, ("ip", "nsenter"))) and _try_namespace()


def _try_namespace() -> bool:
    """Make a namespace and take it away: a container's root may not."""
    name = f"chaos{os.getpid()}probe"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return False
    _ip("netns", "del", name)
    return True


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
