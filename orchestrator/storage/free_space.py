"""Space: what files take, and what is free on the file system that a folder lies on, or will lie on."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import fsspec

from orchestrator.storage.folders import nearest_existing
from orchestrator.storage.uris import is_local, local_path


def free_bytes(folder: str) -> int | None:
    """Bytes that this process can still write there; None for an object store, which has no such limit.

    The folder may be missing: its file system is that of the nearest folder above it that is there.
    """
    if not is_local(folder):
        return None
    return shutil.disk_usage(nearest_existing(local_path(folder).absolute())).free


def used_bytes(path: str) -> int:
    """Bytes of a file, or of all files of a folder; 0 where there is none."""
    if is_local(path):
        return sum(stats.st_size for stats in file_stats(local_path(path)))
    filesystem, plain = fsspec.core.url_to_fs(path)
    return int(filesystem.du(plain)) if filesystem.exists(plain) else 0


def file_stats(path: Path) -> Iterator[os.stat_result]:
    """Stats of a file, or of all files of a folder; files that another process removes meanwhile are skipped."""
    inside = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    for file in [path] if path.is_file() else inside:
        with suppress(FileNotFoundError):
            yield file.lstat()
