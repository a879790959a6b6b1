"""Links of hosts on this machine: a network namespace for each, and one bridge, whose ports can be cut.

Making them needs Linux, root and iproute2. Nothing leads from the bridge to the outside.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from itertools import count

BURST_KIB = 256
"""Burst that a limited link sends before its rate holds: several of the kernel's largest packets, of 64 KiB."""
_serial = count()
"""Tells the networks of one process apart."""


@dataclass(frozen=True)
class Link:
    """A namespace whose one interface, eth0, leads to a port of the bridge."""

    namespace: str
    port: str
    address: str
    bridge: str
    beside: str | None
    """Namespace in which the bridge is; None for the machine's own."""

    def cut(self) -> None:
        """Pull the cable: packets vanish, and nobody is told."""
        _ip("link", "set", self.port, "nomaster", namespace=self.beside)

    def heal(self) -> None:
        """Put the cable into the bridge."""
        _ip("link", "set", self.port, "master", self.bridge, namespace=self.beside)

    def limit(self, mbit_per_s: float) -> None:
        """Let the host send no faster than this, in Mbit/s."""
        shape = ("tbf", "rate", f"{mbit_per_s:.0f}mbit", "burst", f"{BURST_KIB}kb", "latency", "50ms")
        _run("tc", "-n", self.namespace, "qdisc", "replace", "dev", "eth0", "root", *shape)

    def unlimit(self) -> None:
        """Let the host send as fast as this machine can."""
        _run("tc", "-n", self.namespace, "qdisc", "replace", "dev", "eth0", "root", "noqueue")

    def enter(self, command: list[str]) -> list[str]:
        """The command that runs another one in the namespace; files are the same in there."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *command]


class Links:
    """A bridge of this process's own, with links to it.

    Args:
        network: first three numbers of the addresses.
        hidden: the bridge is in a namespace of its own too. So this machine has no address in the network, and any
            number of networks may have the same addresses.
    """

    def __init__(self, network: str | None = None, *, hidden: bool = False) -> None:
        self._name = f"{os.getpid()}x{next(_serial)}"
        self._network = network or f"10.79.{os.getpid() % 256}"
        self._bridge = f"br{self._name}"
        self._namespaces: list[str] = []
        self._beside = self._add_namespace("bridge") if hidden else None
        self.address = f"{self._network}.1"
        """Address of the bridge, which is this machine's where the bridge is not hidden."""
        self._numbers = count(2)
        _ip("link", "add", self._bridge, "type", "bridge", namespace=self._beside)
        _ip("addr", "add", f"{self.address}/24", "dev", self._bridge, namespace=self._beside)
        _ip("link", "set", self._bridge, "up", namespace=self._beside)

    def add(self, number: int | None = None) -> Link:
        """Make a namespace and its link; the number is the last one of its address."""
        number = number or next(self._numbers)
        namespace = self._add_namespace(f"n{number}")
        link = Link(namespace, f"v{self._name}n{number}", f"{self._network}.{number}", self._bridge, self._beside)
        ends = ("type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "add", link.port, *ends, namespace=self._beside)
        _ip("addr", "add", f"{link.address}/24", "dev", "eth0", namespace=namespace)
        for name in ("lo", "eth0"):
            _ip("link", "set", name, "up", namespace=namespace)
        _ip("link", "set", link.port, "up", namespace=self._beside)
        link.heal()
        return link

    def close(self) -> None:
        """Take bridge and namespaces away; a link goes with its namespace."""
        if not self._beside:
            _ip("link", "del", self._bridge)
        for namespace in self._namespaces:
            _ip("netns", "del", namespace)

    def _add_namespace(self, role: str) -> str:
        namespace = f"lab{self._name}{role}"
        _ip("netns", "add", namespace)
        self._namespaces.append(namespace)
        return namespace


def can_be_made() -> bool:
    """Whether this machine allows namespaces to this user."""
    return os.geteuid() == 0 and all(map(shutil.which, ("ip", "nsenter"))) and _try_namespace()


def _try_namespace() -> bool:
    """Make a namespace and take it away: a container's root may not."""
    name = f"lab{os.getpid()}probe"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return False
    _ip("netns", "del", name)
    return True


def _ip(*words: str, namespace: str | None = None) -> None:
    _run("ip", *(["-n", namespace] if namespace else []), *words)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
