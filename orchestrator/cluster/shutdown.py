"""The end of a cluster of machines of one's own: Ray stopped on every host, by ssh as `ray up` reached them.

`ray down` stops the head alone where machines are one's own.
"""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from orchestrator.errors import InputError

STOP_TIMEOUT_S = 120.0
STOP = (
    "systemctl --user disable --now ray-node 2> /dev/null; "
    "crontab -l 2> /dev/null | grep -q ray-node.sh && crontab -l | sed /ray-node.sh/d | crontab -; "
    "pkill -x ray-node.sh; . ~/.profile; ray stop"
)
"""Ends what brings Ray back (deploy/systemd), now and at the next boot, and then Ray."""


def read_hosts(file: str) -> list[list[str]]:
    """Commands that log in to the hosts of a cluster file, the head first; each ends with USER@ADDRESS.

    Raises: InputError.
    """
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
    options = ["ConnectTimeout=10", "BatchMode=yes", "StrictHostKeyChecking=accept-new"]
    try:
        auth = config["auth"]
        if "ssh_proxy_command" in auth:
            options.append(f"ProxyCommand={auth['ssh_proxy_command']}")
        key = ["-i", str(Path(auth["ssh_private_key"]).expanduser())] if "ssh_private_key" in auth else []
        login = ["ssh", *(word for option in options for word in ("-o", option)), *key]
        head = provider.get("external_head_ip") or provider["head_ip"]
        return [[*login, f"{auth['ssh_user']}@{address}"] for address in (head, *provider["worker_ips"])]
    except (KeyError, TypeError) as error:
        raise InputError(f"{file} lacks {error}; compare it with the project's cluster.local.yaml") from error


def stop_hosts(logins: list[list[str]]) -> list[str]:
    """Stop Ray on hosts, the first before all others, since its autoscaler would start them again.

    Returns for each the reason why its Ray may still run, or nothing.
    """
    with ThreadPoolExecutor(max_workers=32) as threads:
        return [*map(_stop, logins[:1]), *threads.map(_stop, logins[1:])]


def _stop(login: list[str]) -> str:
    try:
        done = subprocess.run(
            [*login, STOP], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STOP_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"it has not answered for {STOP_TIMEOUT_S:.0f} s"
    said = done.stderr.strip().splitlines() or [f"`ray stop` has ended with status {done.returncode}"]
    return said[-1] if done.returncode else ""
