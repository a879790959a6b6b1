"""Addresses of Ray clusters: which are meant for what, and whether something listens there."""

import socket
from urllib.parse import urlsplit

from orchestrator.errors import ClusterError
from orchestrator.settings import Settings

_CONNECT_TIMEOUT_S = 5.0


def names_no_cluster(settings: Settings) -> bool:
    """Whether Ray runs on this machine alone, because the settings name no cluster."""
    return settings.address in (None, "local")


def check_reachable(address: str) -> None:
    """Check that a driver can connect to an address.

    Raises: ClusterError for a dashboard's address, and where nobody listens.
    """
    if address == "auto":
        return
    if address.startswith(("http://", "https://")):
        raise ClusterError(
            f"{address} is a dashboard's address: use it with `orchestrator submit`, or give HOST:6379 to run from here"
        )
    check_listening(address if "://" in address else f"ray://{address}")


def check_listening(address: str) -> None:
    """Check within seconds that something listens at an address; Ray itself takes a minute. Raises: ClusterError."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        host, port = None, None
    shown = address.removeprefix("ray://")
    if host is None or port is None:
        raise ClusterError(f"{shown!r} is no address of a Ray cluster; give HOST:PORT, usually HOST:6379, or auto")
    try:
        socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterError(
            f"no Ray answers at {shown}: {reason}; check that it runs (`ray status`) and that this machine may reach it"
        ) from error
