"""Ray nodes on this machine: each is what `ray start` starts, and can be killed, frozen, cut off and added."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.hosts import links
from tests.hosts.links import Link, Links
from tests.waiting import wait_until

CPUS_PER_NODE = 3
"""Ray CPUs of a node: room for one training worker of two, and for the data tasks beside it."""
ENVIRONMENT = {
    # A silent node counts as lost after some seconds instead of a minute.
    "RAY_health_check_initial_delay_ms": "3000",
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    # Ray ends a node that is not registered within 30 s, which a busy machine may need.
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_AUTH_MODE": "token",
}
OBJECT_STORE_BYTES = 150 << 20


@dataclass
class Node:
    """A Ray node: `ray start --block`, and what it has started."""

    starter: "subprocess.Popen[bytes]"
    link: Link | None
    """Its link where it has a network of its own."""

    def processes(self) -> list[psutil.Process]:
        """All processes of the node that run."""
        with suppress(psutil.NoSuchProcess):
            starter = psutil.Process(self.starter.pid)
            return [starter, *starter.children(recursive=True)]
        return []

    def training_workers(self) -> list[psutil.Process]:
        """Processes of Ray Train's workers."""
        return [process for process in self.processes() if "RayTrainWorker" in title(process)]

    def kill(self) -> None:
        """End the node at once, as a power cut does."""
        processes = self.processes()
        send(signal.SIGKILL, processes)
        self.starter.wait()
        wait_until(lambda: not any(map(_runs, processes)), "killed processes live on")


class Hosts:
    """A Ray cluster: a head without CPUs, where drivers run, and nodes beside it.

    Args:
        folder: empty, for Ray's own files; a short path, since sockets lie in it.
    """

    def __init__(self, num_nodes: int, folder: Path) -> None:
        self._folder, self._num_nodes = folder, num_nodes
        self._links = Links() if links.can_be_made() else None
        self.nodes: list[Node] = []
        self.start_all()

    def start_all(self) -> None:
        """Start a head, at a new address, and the nodes beside it."""
        ip = self._links.address if self._links else "127.0.0.1"
        self.address = f"{ip}:{_free_port(ip)}"
        port = self.address.rpartition(":")[2]
        options = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", f"--node-ip-address={ip}"]
        self.head = self._start([*options, f"--temp-dir={self._folder}"], None)
        for _ in range(self._num_nodes):
            self.add()

    def add(self) -> None:
        """Start another node and wait until it is there."""
        link = self._links.add() if self._links else None
        ip = link.address if link else "127.0.0.1"
        options = [f"--address={self.address}", f"--num-cpus={CPUS_PER_NODE}", f"--node-ip-address={ip}"]
        self.nodes.append(self._start(options, link))

    def _start(self, options: list[str], link: Link | None) -> Node:
        """Run `ray start` until it says that the node is there."""
        command = [str(Path(sys.executable).with_name("ray")), "start", "--block", *options, "--disable-usage-stats"]
        # Ports that are free, since nodes may share an address.
        command += ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]
        command += [f"--object-store-memory={OBJECT_STORE_BYTES}"]
        log = Path(tempfile.mkstemp(prefix="start-", suffix=".log", dir=self._folder)[1])
        with log.open("wb") as output:
            # Gloo takes the interface that the host's name leads to, which is not there in a namespace.
            environment = {**os.environ, **({"GLOO_SOCKET_IFNAME": "eth0"} if link else {})}
            starter = subprocess.Popen(
                link.enter(command) if link else command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        node = Node(starter, link)
        wait_until(lambda: b"runtime started" in log.read_bytes() or starter.poll() is not None, "no node starts")
        assert starter.poll() is None, log.read_text()
        return node

    def kill(self, node: Node) -> None:
        """End a node at once."""
        node.kill()
        self.nodes.remove(node)

    def discard_dead(self) -> None:
        """Forget the nodes whose raylet has ended, and start others in their place."""
        for node in list(self.nodes):
            if not any("raylet/raylet" in title(process) for process in node.processes()):
                self.kill(node)
                self.add()

    def kill_all(self) -> None:
        """End the head and all nodes at once."""
        for node in [self.head, *self.nodes]:
            node.kill()
        self.nodes.clear()

    def training_workers(self) -> list[psutil.Process]:
        """Processes of Ray Train's workers, on all nodes."""
        return [process for node in self.nodes for process in node.training_workers()]

    def node_of(self, worker: psutil.Process) -> Node:
        """Node that a worker's process belongs to."""
        return next(node for node in self.nodes if worker.pid in {each.pid for each in node.processes()})

    def close(self) -> None:
        """End all nodes, and take their networks away."""
        self.kill_all()
        if self._links:
            self._links.close()


@contextmanager
def started_hosts(num_nodes: int) -> Iterator[Hosts]:
    """Start a cluster that only this user's token opens; it ends with the block.

    The variables that it needs stay in this process's environment, which Ray's processes and the drivers inherit.
    """
    folder = Path(tempfile.mkdtemp(prefix="ch-"))
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text("c" * 64)
    os.environ.update(ENVIRONMENT, RAY_AUTH_TOKEN_PATH=str(token))
    hosts = Hosts(num_nodes, folder)
    try:
        yield hosts
    finally:
        hosts.close()
        shutil.rmtree(folder, ignore_errors=True)


def title(process: psutil.Process) -> str:
    """A process's command line, which Ray sets to what the process does; empty when it has ended."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def send(number: int, processes: list[psutil.Process]) -> None:
    """Send a signal to those processes that still run: one that kills, freezes or thaws them."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _free_port(ip: str) -> int:
    with socket.socket() as probe:
        probe.bind((ip, 0))
        return int(probe.getsockname()[1])
