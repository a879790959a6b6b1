"""A small disk that an episode's laboratory is lent, and that fills up."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.episode import NotHereError
from tests.chaos.laboratory import Laboratory

DISK_BYTES = 64 << 20


@dataclass(frozen=True)
class Disk:
    """A mounted file system of its own."""

    mounted_at: Path

    @property
    def _filler(self) -> Path:
        return self.mounted_at / "other-peoples-data"

    def fill(self) -> None:
        """Write until nothing more fits."""
        block = bytes(4096)
        with self._filler.open("wb", buffering=0) as file:
            while shutil.disk_usage(self.mounted_at).free >= len(block):
                file.write(block)

    def free(self) -> None:
        """Make room again."""
        self._filler.unlink()


def lend_small_disk(laboratory: Laboratory) -> Disk:
    """Mount a small file system as the laboratory's home. Raises: NotHereError where this user may not mount."""
    laboratory.home.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(laboratory.home)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        raise NotHereError("mounting a small disk needs Linux and root")
    laboratory.lent.callback(subprocess.run, ["umount", "--lazy", str(laboratory.home)], check=True)
    return Disk(laboratory.home)
