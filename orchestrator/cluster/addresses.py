"""Addresses of Ray clusters: which are meant for what, and whether something listens there."""

import os
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from orchestrator.errors import ClusterError
from orchestrator.settings import API_ADDRESS_VARIABLE, Settings, lies_here

_CONNECT_TIMEOUT_S = 5.0


def names_no_cluster(settings: Settings) -> bool:
    """Whether Ray runs on this machine alone, because the settings name no cluster."""
    return settings.address in (None, "local")


def is_dashboard(address: str) -> bool:
    """Whether an address is a dashboard's, by which jobs are submitted, and no driver can connect."""
    return address.startswith(("http://", "https://"))


def head_dashboard(settings: Settings, environ: Mapping[str, str] = os.environ) -> str | None:
    """Address of the dashboard on whose head the registry is read; None where the settings name another place.

    A registry that was typed, or a server's, is read from here, unless it is `file:PATH` and that file is the
    cluster's. One of this machine's environment gives way to the dashboard. A driver's address, as jobs on a cluster
    have one, is no dashboard's.
    """
    address = settings.address or environ.get(API_ADDRESS_VARIABLE, "")
    if not is_dashboard(address) or ("registry" in settings.sent and not is_file_elsewhere(settings.registry)):
        return None
    return address.rstrip("/")


def dashboard_address(settings: Settings, environ: Mapping[str, str] = os.environ) -> str:
    """The http(s) address to submit to. Raises: ClusterError."""
    given = settings.address or ""
    address = given if is_dashboard(given) else environ.get(API_ADDRESS_VARIABLE, "")
    if not is_dashboard(address) or not urlsplit(address).hostname:
        raise ClusterError(
            "this needs the address of a cluster's dashboard: --address http://127.0.0.1:8265 "
            f"or {API_ADDRESS_VARIABLE}; `ray dashboard cluster.yaml` opens a way to it"
        )
    return address.rstrip("/")


def is_file_elsewhere(registry: str) -> bool:
    """Whether a registry is `file:PATH` of a file that is not on this machine."""
    return registry.startswith("file:") and not lies_here(registry)


def check_reachable(address: str) -> None:
    """Check that a driver can connect to an address.

    Raises: ClusterError for a dashboard's address, and where nobody listens.
    """
    if address == "auto":
        return
    if is_dashboard(address):
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
        if is_dashboard(address):
            raise ClusterError(
                f"no dashboard answers at {address}: {reason}; where the cluster runs, the way to it may be missing: "
                "`ray dashboard cluster.yaml` opens one, and is left running in a terminal of its own"
            ) from error
        raise ClusterError(
            f"no Ray answers at {shown}: {reason}; check that it runs (`ray status`) and that this machine may reach it"
        ) from error
