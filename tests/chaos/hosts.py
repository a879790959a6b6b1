"""Ray nodes on this machine, as processes that can be killed, frozen and added."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.waiting import wait_until

CPUS_PER_NODE = 3
"""Ray CPUs of a node: room for one training worker of two, and for the data tasks beside it."""
HEALTH_CHECKS = {
    # A frozen node counts as lost after some seconds instead of a minute.
    "RAY_health_check_initial_delay_ms": "3000",
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}


class Hosts:
    """A Ray cluster: a head without CPUs, where drivers run, and nodes beside it."""

    def __init__(self, num_nodes: int) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.nodes: list[Any] = []
        for _ in range(num_nodes):
            self.add()

    @property
    def address(self) -> str:
        """HOST:PORT of the cluster's GCS."""
        return str(self._cluster.address)

    def add(self) -> Any:
        """Start another node and wait until it is there."""
        node = self._cluster.add_node(num_cpus=CPUS_PER_NODE)
        self.nodes.append(node)
        return node

    def kill(self, node: Any) -> None:
        """End a node at once, as a power cut does."""
        for process in processes_of(node):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._cluster.remove_node(node, allow_graceful=False)
        self.nodes.remove(node)

    def discard_dead(self) -> None:
        """Forget the nodes whose raylet has ended, and start others in their place."""
        for node in list(self.nodes):
            if not is_raylet_alive(node):
                self.kill(node)
                self.add()

    def training_workers(self) -> list[psutil.Process]:
        """Processes of Ray Train's workers, on all nodes."""
        return [process for node in self.nodes for process in processes_of(node) if is_training_worker(process)]

    def node_of(self, worker: psutil.Process) -> Any:
        """Node that a worker's process belongs to."""
        return next(node for node in self.nodes if worker.pid in {each.pid for each in processes_of(node)})

    def close(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()


@contextmanager
def started_hosts(
    num_nodes: int, folder: Path, set_variable: Callable[[str, str], None] = os.environ.__setitem__
) -> Iterator[Hosts]:
    """Start a cluster that only this user's token opens; it ends with the block.

    Args:
        set_variable: sets a variable of the environment, which Ray's processes and the drivers inherit.
    """
    token = folder / "ray_token"
    token.touch(mode=0o600)
    token.write_text("c" * 64)
    for name, value in {**HEALTH_CHECKS, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}.items():
        set_variable(name, value)
    hosts = Hosts(num_nodes)
    try:
        yield hosts
    finally:
        hosts.close()


def processes_of(node: Any) -> list[psutil.Process]:
    """A node's raylet and everything it has started."""
    with suppress(psutil.NoSuchProcess):
        raylet = psutil.Process(_raylet(node).pid)
        return [raylet, *raylet.children(recursive=True)]
    return []


def is_raylet_alive(node: Any) -> bool:
    """Whether the node's raylet runs."""
    return _raylet(node).poll() is None


def _raylet(node: Any) -> Any:
    return node.all_processes["raylet"][0].process


def is_training_worker(process: psutil.Process) -> bool:
    """Whether a process is a worker of Ray Train, by the title that Ray gives it."""
    with suppress(psutil.NoSuchProcess):
        return "RayTrainWorker" in " ".join(process.cmdline())
    return False


def freeze(processes: list[psutil.Process]) -> None:
    """Stop processes without ending them."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)


def thaw(processes: list[psutil.Process]) -> None:
    """Let frozen processes go on."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)


def wait_for_ends(processes: list[psutil.Process]) -> None:
    """Wait until all of these processes have ended."""
    wait_until(
        lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes),
        "processes of a killed run live on",
    )
