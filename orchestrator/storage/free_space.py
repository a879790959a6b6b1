"""Space: what files take, and what is free on the file system that a folder lies on, or will lie on."""

import shutil
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
        return sum(file.lstat().st_size for file in files_of(local_path(path)))
    filesystem, plain = fsspec.core.url_to_fs(path)
    return int(filesystem.du(plain)) if filesystem.exists(plain) else 0


def files_of(path: Path) -> list[Path]:
    """A file, or all files of a folder."""
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
