"""Probe of one node: what it looks at there, from a process of Ray's on the node.

It travels to the node by value, and imports this project only inside a function: a node that lacks the package, or has
another version of it, can still say so.
"""

import hashlib
import importlib.util
import os
import platform
import shutil
import socket
import threading
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("bert_core", "orchestrator")
_DISTRIBUTION = "bert-orchestrator"


class NodeProbe:
    """Looks at the node that it runs on; an actor of Ray's, or a plain object for the driver's own machine."""

    def look(self, folder: str, marker: str, own_marker: str) -> dict[str, Any]:
        """Return what there is to know of this node, as plain values; `NodeReport` names them.

        Args:
            folder: on the storage; `marker` is a file that the driver has written there, `own_marker` is written now.
        """
        free_memory, memory = _memory()
        disk = shutil.disk_usage(_ray_folder())
        interface, address, gloo_error = gloo_device()
        seen, seen_error = _tried(lambda: _reads_back(folder, marker))
        written, written_error = _tried(lambda: _writes(folder, own_marker)) if seen else (False, "")
        return {
            "host": socket.gethostname(),
            "versions": versions(),
            "token_mode": _token_mode(),
            "sees_storage": bool(seen),
            "writes_storage": bool(written),
            "storage_error": seen_error or written_error,
            "free_memory_bytes": free_memory,
            "memory_bytes": memory,
            "free_disk_bytes": disk.free,
            "disk_bytes": disk.total,
            "gloo_interface": interface,
            "gloo_address": address,
            "gloo_error": gloo_error,
        }

    def clock(self) -> float:
        """Return this node's time, in seconds since 1970."""
        return time.time()

    def receive(self, boxed: list[Any]) -> float:
        """Fetch an object of the driver's into this node's object store; returns the seconds that it took."""
        import ray

        begun_at = time.perf_counter()
        ray.get(boxed[0])
        return time.perf_counter() - begun_at

    def listen(self, address: str, name: str) -> int:
        """Tell a name to whoever connects to an address of this node, as its workers would listen; returns the port."""
        listening = socket.create_server((address, 0), family=_family(address))

        def serve() -> None:
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.sendall(name.encode())

        threading.Thread(target=serve, daemon=True).start()
        return int(listening.getsockname()[1])

    def call(self, address: str, port: int, timeout_s: float) -> tuple[str, str]:
        """Return the name of the node that listens at an address, as seen from here, and what is wrong on the way."""
        try:
            with (
                socket.create_connection((address, port), timeout=timeout_s) as connection,
                connection.makefile() as it,
            ):
                return it.read(), ""
        except OSError as error:
            return "", error.strerror or str(error)


def versions() -> dict[str, str]:
    """Return the versions of what decides a run, empty where it is not installed, and the digest of our sources."""
    return {
        "python": platform.python_version(),
        "ray": _version("ray"),
        "torch": _version("torch"),
        "package": _version(_DISTRIBUTION),
        "digest": source_digest(),
    }


def source_digest() -> str:
    """Digest of this project's source files as they are installed here; empty where a package is missing."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        found = importlib.util.find_spec(package)
        if found is None or not found.submodule_search_locations:
            return ""
        folder = Path(found.submodule_search_locations[0])
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{package}/{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def gloo_device() -> tuple[str, str, str]:
    """Interface and address that torch's Gloo would take in a process like this one, and what is wrong with them.

    The interface is the one that GLOO_SOCKET_IFNAME names; without it, the one of the host name's first address that a
    socket can be bound to; else the loopback (`ProcessGroupGloo::createDefaultDevice`).
    """
    addresses = _interface_addresses()
    named = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    if named:
        if named in addresses:
            return named, addresses[named][0], ""
        return named, "", f"GLOO_SOCKET_IFNAME is {named}, and there is no such interface with an address"
    address = next(filter(_can_bind, _addresses_of_host_name()), "127.0.0.1")
    interface = next((name for name, own in addresses.items() if address in own), "lo")
    return interface, address, ""


def _interface_addresses() -> dict[str, list[str]]:
    """Addresses of each interface that has one, IPv4 before IPv6."""
    import ray  # brings psutil along

    assert ray.__version__
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    found = {
        name: [own.address.partition("%")[0] for family in families for own in all_own if own.family == family]
        for name, all_own in psutil.net_if_addrs().items()
    }
    return {name: own for name, own in found.items() if own}


def _addresses_of_host_name() -> list[str]:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(entry[4][0]) for entry in found]


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _can_bind(address: str) -> bool:
    with socket.socket(_family(address), socket.SOCK_STREAM) as tried:
        try:
            tried.bind((address, 0))
        except OSError:
            return False
    return True


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _token_mode() -> str:
    from ray._private.authentication.authentication_utils import is_token_auth_enabled

    return "token" if is_token_auth_enabled() else "disabled"


def _memory() -> tuple[int, int]:
    """Free bytes and all bytes of memory, of the container where there is one."""
    from ray._common.utils import get_system_memory
    from ray._private.utils import get_used_memory

    total = int(get_system_memory())
    return max(0, total - int(get_used_memory())), total


def _ray_folder() -> str:
    """Folder to which Ray spills objects that do not fit into the object store."""
    import ray

    node = ray._private.worker._global_node
    return str(node.get_temp_dir_path()) if node is not None else "/"


def _reads_back(folder: str, marker: str) -> bool:
    from orchestrator.storage import exists, join, read_bytes

    path = join(folder, marker)
    return exists(path) and read_bytes(path) == marker.encode()


def _writes(folder: str, own_marker: str) -> bool:
    from orchestrator.storage import join, write_bytes

    write_bytes(join(folder, own_marker), own_marker.encode())
    return True


def _tried(look: Callable[[], bool]) -> tuple[bool, str]:
    """Return what `look` returns, and the error that it raised instead, in one line."""
    try:
        return look(), ""
    except Exception as error:  # each file system has errors of its own, and the package may be another version
        return False, " ".join(f"{type(error).__name__}: {error}".split())[:200]
