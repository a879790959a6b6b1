"""Ray for one command: connect to a running cluster or start a local one, and see whether it can give what is asked.

Settings that matter are made here, before Ray is imported: token authentication with a private token for a cluster of
our own, no usage reports, reports from training workers seen within a fifth of a second, how workers take memory.
"""

import math
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from orchestrator.errors import ClusterError
from orchestrator.settings import Settings

CONNECT_TIMEOUT_S = 5.0
MAX_LOGICAL_PER_CORE = 4
"""Processes that may share a core of a local Ray; beyond that they only stand in one another's way."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # How often Train looks at its workers: the default of 2 s delays every report and checkpoint by as much.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    # Says in advance what Ray will do one day: leave CUDA_VISIBLE_DEVICES alone for workers without GPUs.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # glibc gives a step's large tensors back to the kernel and takes them again, zeroed; keeping them trains faster.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    # oneDNN keeps a compiled kernel for each shape, a thousand by default, and packed batches have new shapes in every
    # step: a worker grew to gigabytes. What a step uses again, layer by layer, fits into this.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    "LRU_CACHE_CAPACITY": "64",
}


@dataclass(frozen=True)
class Processes:
    """Processes that run at the same time, and what each needs on the one node that it runs on."""

    count: int
    resources: Mapping[str, float]


@contextmanager
def connect(settings: Settings, *, num_cpus: float = 0.0) -> Iterator[None]:
    """A Ray to work on: the cluster at `settings.address`, else a local one that ends with the block.

    A local one counts `num_cpus` logical CPUs where the machine has fewer (within reason), so that workers and their
    data tasks do not wait for one another on a small machine. A Ray that is connected already is used and left alone.

    Raises: ClusterError when the cluster cannot be reached or refuses.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    local = is_local(settings)
    if local and "ray" not in sys.modules:
        _use_private_token(settings.home)
    import ray

    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "namespace": "orchestrator"}
    if local:
        options |= {
            "address": "local",
            "num_cpus": _logical_cpus(num_cpus),
            "include_dashboard": False,
        }
    else:
        assert settings.address is not None
        check_reachable(settings.address)
        options["address"] = settings.address
    try:
        with _own_signal_handlers():
            ray.init(**options)
    except Exception as error:  # of every kind: a node that starts too slowly raises a bare one
        where = "a local Ray could not be started" if local else f"Ray at {settings.address} cannot be used"
        raise ClusterError(f"{where}: {_first_line(error)}; {_remedy(local, error)}") from error
    try:
        yield
    finally:
        ray.shutdown()


def is_local(settings: Settings) -> bool:
    """Whether Ray runs on this machine alone: no cluster is named."""
    return settings.address in (None, "local")


def _logical_cpus(needed: float) -> int:
    """What a local Ray says it has: the cores, or what is needed while that is not absurd for so many cores."""
    cores = os.cpu_count() or 1
    return max(cores, min(math.ceil(needed), MAX_LOGICAL_PER_CORE * cores))


def cluster_resources() -> dict[str, float]:
    """What the connected Ray has in all, by name: `CPU`, `GPU`, `memory` in bytes, …"""
    import ray

    return {str(name): float(count) for name, count in ray.cluster_resources().items()}


def local_resources(num_cpus: float) -> dict[str, float]:
    """What a local Ray would have when asked for so many logical CPUs; none is started."""
    import torch

    return {"CPU": float(_logical_cpus(num_cpus)), "GPU": float(torch.cuda.device_count())}


def check_resources(
    needed: Mapping[str, float], have: Mapping[str, float] | None = None, place: str = "the cluster"
) -> None:
    """See that a place has what is asked. Raises: ClusterError, naming what is missing.

    `have` defaults to the connected Ray's; an autoscaling cluster has what its workers that are up have.
    """
    have = cluster_resources() if have is None else have
    short = [
        f"{_amount(name, count)} asked, {_amount(name, have.get(name, 0.0))} there"
        for name, count in needed.items()
        if count > have.get(name, 0.0) + 1e-9
    ]
    if short:
        raise ClusterError(
            f"{place} cannot give what this needs: {'; '.join(short)}. "
            "Lower it in the spec's `execution`, or use a larger cluster with --address"
        )


def check_processes(
    needed: Iterable[Processes], nodes: Sequence[Mapping[str, float]] | None = None, place: str = "the cluster"
) -> None:
    """See that processes find room on the nodes; Ray would wait for ever where only the nodes' sum is enough.

    `nodes` defaults to what each node of the connected Ray has. Raises: ClusterError.
    """
    nodes = node_resources() if nodes is None else nodes
    for processes in needed:
        room = sum(_room(node, processes.resources) for node in nodes)
        if room < processes.count:
            asked = "1 process is asked" if processes.count == 1 else f"{processes.count} processes are asked, each"
            each = " and ".join(_amount(name, count) for name, count in processes.resources.items())
            raise ClusterError(
                f"{asked} with {each} on one node; {place} has room for {room}. Lower execution.num_workers or "
                "execution.cpus_per_worker (a sweep: cpus_per_trial, gpus_per_trial), or use larger nodes"
            )


def node_resources() -> list[dict[str, float]]:
    """What each living node of the connected Ray has, by name."""
    import ray

    return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]


def _room(node: Mapping[str, float], resources: Mapping[str, float]) -> int:
    """How many processes with so much each a node holds."""
    return min(int(node.get(name, 0.0) / count + 1e-9) for name, count in resources.items() if count)


def _amount(name: str, count: float) -> str:
    if "memory" in name:
        return f"{count / (1 << 30):.1f} GiB of {name}"
    return f"{count:g} {name}s" if name in ("CPU", "GPU") and count != 1 else f"{count:g} {name}"


def _use_private_token(home: Path) -> None:
    """Token authentication with a token that only this user can read; Ray would write one that everybody can."""
    if os.environ.setdefault("RAY_AUTH_MODE", "token") != "token":
        return
    if "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ:
        return
    path = home / "ray_token"
    try:
        home.mkdir(parents=True, exist_ok=True)
        _create_private(path, secrets.token_hex(32))
    except OSError as error:
        raise ClusterError(f"{path} cannot be written: {error.strerror}; give another --home") from error
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)


def _create_private(path: Path, text: str) -> None:
    """A file that appears whole, that only this user can read; one that is there stays as it is."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        path.chmod(0o600)
    finally:
        temporary.unlink()


def check_reachable(address: str) -> None:
    """See that `address` is one a driver can connect to, and that something listens there. Raises: ClusterError."""
    if address == "auto":
        return
    if address.startswith(("http://", "https://")):
        raise ClusterError(
            f"{address} is a dashboard's address: use it with `orchestrator submit`, or give HOST:6379 to run from here"
        )
    check_listening(address if "://" in address else f"ray://{address}")


def check_listening(address: str) -> None:
    """Find out within seconds what Ray would find out within a minute. Raises: ClusterError."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        host, port = None, None
    shown = address.removeprefix("ray://")
    if host is None or port is None:
        raise ClusterError(f"{shown!r} is no address of a Ray cluster; give HOST:PORT, usually HOST:6379, or auto")
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterError(
            f"no Ray answers at {shown}: {reason}; check that it runs (`ray status`) and that this machine may reach it"
        ) from error


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """ray.init replaces the handler of SIGTERM by one that skips our end states; put ours back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


def _remedy(local: bool, error: Exception) -> str:
    text = str(error).lower()
    if "version mismatch" in text:
        return "use the versions of constraints.txt on both sides"
    if "auth" in text or "token" in text:
        return (
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the cluster's token (`ray get-auth-token` on its head)"
        )
    return "see `orchestrator doctor`" if local else "check the address, and that the cluster runs (`ray status`)"
