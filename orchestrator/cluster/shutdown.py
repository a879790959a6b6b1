"""The end of a cluster of machines of one's own: Ray, and the monitor that brings it back, stopped on every host.

`ray down` stops the head alone where machines are one's own. Hosts are reached by ssh as the cluster file says, which
is how `ray up` reached them.
"""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orchestrator.errors import InputError

CONNECT_TIMEOUT_S = 10
STOP_TIMEOUT_S = 120.0
"""Time that a host gets to stop Ray, or to say whether it runs."""
STOP = ". ~/.profile; python -m orchestrator.cluster.node_monitor stop"
LEFT = 'pgrep -u "$(id -u)" -x "raylet|gcs_server"'
"""Processes of Ray that still run; pgrep's status is 1 where there is none."""


@dataclass(frozen=True)
class ClusterHost:
    """A host of a cluster file."""

    address: str
    role: str
    """`head` or `worker`."""
    login: tuple[str, ...]
    """The command that logs in to it by ssh."""


@dataclass(frozen=True)
class StoppedHost:
    """A host that was asked to stop its Ray."""

    host: str
    role: str
    problem: str
    """Reason why its Ray may still run; empty where it is stopped."""


def read_hosts(file: str) -> list[ClusterHost]:
    """Hosts of a cluster file, the head first. Raises: InputError."""
    try:
        config = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; give the file that `ray up` was given") from error
    except yaml.YAMLError as error:
        raise InputError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    provider = config.get("provider") if isinstance(config, dict) else None
    if not isinstance(provider, dict) or provider.get("type") != "local":
        raise InputError(
            f"{file} does not list machines of your own (provider: type: local); a cloud's end with: ray down {file}"
        )
    try:
        return list(_hosts(provider, config["auth"]))
    except (KeyError, TypeError) as error:
        raise InputError(f"{file} lacks {error}; compare it with the project's cluster.local.yaml") from error


def _hosts(provider: dict[str, Any], auth: dict[str, Any]) -> Iterator[ClusterHost]:
    options = [f"ConnectTimeout={CONNECT_TIMEOUT_S}", "BatchMode=yes", "StrictHostKeyChecking=accept-new"]
    if "ssh_proxy_command" in auth:
        options.append(f"ProxyCommand={auth['ssh_proxy_command']}")
    login = ["ssh", *(word for option in options for word in ("-o", option))]
    if "ssh_private_key" in auth:
        login += ["-i", str(Path(auth["ssh_private_key"]).expanduser())]
    head = provider.get("external_head_ip") or provider["head_ip"]
    for address, role in [(head, "head"), *((worker, "worker") for worker in provider["worker_ips"])]:
        yield ClusterHost(address, role, (*login, f"{auth['ssh_user']}@{address}"))


def stop_hosts(hosts: list[ClusterHost]) -> list[StoppedHost]:
    """Stop Ray on hosts: on the head before all others, since its autoscaler would start them again."""
    heads = [host for host in hosts if host.role == "head"]
    stopped = [_stop(host) for host in heads]
    workers = [host for host in hosts if host.role != "head"]
    with ThreadPoolExecutor(max_workers=32) as threads:
        return stopped + list(threads.map(_stop, workers))


def _stop(host: ClusterHost) -> StoppedHost:
    """Stop Ray on one host, and look whether it has ended."""
    try:
        asked, left = (
            subprocess.run(
                [*host.login, command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STOP_TIMEOUT_S
            )
            for command in (STOP, LEFT)
        )
    except subprocess.TimeoutExpired:
        return StoppedHost(host.address, host.role, f"it has not answered for {STOP_TIMEOUT_S:.0f} s")
    # Beside a node that is just being started again no raylet runs: only the monitor's own end counts.
    if asked.returncode == 0 and left.returncode == 1:
        return StoppedHost(host.address, host.role, "")
    said = (left.stderr if left.returncode == 255 else asked.stderr).strip().splitlines()
    return StoppedHost(host.address, host.role, said[-1] if said else "Ray's processes do not end")
