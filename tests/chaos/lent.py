"""A server, and a small disk that fills up, which an episode's laboratory is lent."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.chaos.episode import NotHereError
from tests.chaos.laboratory import Laboratory
from tests.orchestrator.postgres_server import Server, find_binaries, running_server

DISK_BYTES = 64 << 20


def lend_postgresql(laboratory: Laboratory) -> Server:
    """Start a PostgreSQL server for the laboratory's registry. Raises: NotHereError where it is not installed."""
    binaries = find_binaries()
    if binaries is None:
        raise NotHereError("PostgreSQL is not installed")
    server = laboratory.lent.enter_context(running_server(binaries))
    laboratory.registry = server.url
    return server


def lend_small_disk(laboratory: Laboratory) -> Path:
    """Mount a small file system as the laboratory's home; returns the file to fill it with, and to delete.

    Raises: NotHereError where this user may not mount.
    """
    laboratory.home.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(laboratory.home)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        raise NotHereError("mounting a small disk needs Linux and root")
    laboratory.lent.callback(subprocess.run, ["umount", "--lazy", str(laboratory.home)], check=True)
    return laboratory.home / "other-peoples-data"


def fill(filler: Path) -> None:
    """Write a file until nothing more fits on its disk."""
    block = bytes(4096)
    with filler.open("wb", buffering=0) as file:
        while shutil.disk_usage(filler.parent).free >= len(block):
            file.write(block)
