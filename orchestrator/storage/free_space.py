"""Free space of the file system that a folder lies on, or will lie on."""

import shutil

from orchestrator.storage.uris import is_local, local_path


def free_bytes(folder: str) -> int | None:
    """Bytes that this process can still write there; None for an object store, which has no such limit.

    The folder may be missing: its file system is that of the nearest folder above it that is there.
    """
    if not is_local(folder):
        return None
    path = local_path(folder).absolute()
    return shutil.disk_usage(next(above for above in (path, *path.parents) if above.exists())).free
