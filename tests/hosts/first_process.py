"""First process of a host: mounts what is the host's own, starts its daemons, and lives as long as the host.

`machines.py` runs it, as process 1 of new namespaces, with its plan as JSON in `argv[1]`. Only the standard library: it
runs as a file. It ends, and with it every process of the host, when its standard input is closed: so nothing outlives
the test, however that ends.
"""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

OWN_FOLDERS = ("/root", "/tmp", "/var/spool/cron", "/etc/cron.d")
"""Folders that lie on the host's disk, and stay when it is switched off."""
OWN_MEMORY = ("/srv", "/run", "/dev/shm")
"""Folders that are empty when the host is switched on."""
FILE_LIMIT = 8192
"""Hard limit of open files, lower than what Ray would like: a host of one's own often has it so."""


def main() -> None:
    """Make the host, say so, and wait."""
    plan = json.loads(sys.argv[1])
    socket.sethostname(plan["name"])
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, FILE_LIMIT))
    _mount_own_folders(Path(plan["disk"]), plan)
    if plan["serves"]:
        _start_daemons()
    # Orphans of the host become children of this process; the kernel clears them away when they have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("up", flush=True)
    sys.stdin.read()


def _mount_own_folders(disk: Path, plan: dict[str, Any]) -> None:
    """Replace this machine's folders by the host's; the disk itself is out of sight afterwards."""
    _run("mount", "--make-rprivate", "/")
    for path in plan["seen"]:
        # Only what an own folder hides has to be shown again.
        if path.startswith(OWN_FOLDERS):
            _mount(path, disk / path.lstrip("/"))
    for folder in OWN_MEMORY:
        _run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", folder)
    if plan["shared"]:
        _mount(plan["shared"], Path("/srv/lab"))
    Path("/run/sshd").mkdir(mode=0o755)
    shutil.copy(plan["host_key"], "/run/host_key")
    for file in ("/etc/hosts", "/etc/crontab"):
        _run("mount", "--bind", str(disk / file.lstrip("/")), file)
    # The disk may lie in one of these, so that no source can be found after the last of them.
    sources = {folder: os.open(disk / folder.lstrip("/"), os.O_PATH) for folder in OWN_FOLDERS}
    for folder, descriptor in sources.items():
        _run("mount", "--rbind", f"/proc/self/fd/{descriptor}", folder, keep=descriptor)
    os.chdir("/")


def _start_daemons() -> None:
    """Start sshd, which lets the control machine's key in, and cron, which runs what is to run at boot."""
    options = {
        "HostKey": "/run/host_key",
        "PasswordAuthentication": "no",
        "UsePAM": "no",
        "StrictModes": "no",
        "MaxStartups": "100",
        "Subsystem": "sftp internal-sftp",
    }
    arguments = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    _run("/usr/sbin/sshd", "-f", "/dev/null", "-E", "/run/sshd.log", *arguments)
    _run("/usr/sbin/cron")


def _mount(source: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    _run("mount", "--rbind", source, str(target))


def _run(*command: str, keep: int | None = None) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, pass_fds=() if keep is None else (keep,))


if __name__ == "__main__":
    main()
