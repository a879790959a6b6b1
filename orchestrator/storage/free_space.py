"""Free space of the file system that a folder lies on, or will lie on."""

import shutil

from orchestrator.storage.folders import nearest_existing
from orchestrator.storage.uris import is_local, local_path


def free_bytes(folder: str) -> int | None:
    """Bytes that this process can still write there; None for an object store, which has no such limit.

    The folder may be missing: its file system is that of the nearest folder above it that is there.
    """
    if not is_local(folder):
        return None
    return shutil.disk_usage(nearest_existing(local_path(folder).absolute())).free
