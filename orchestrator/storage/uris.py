"""Names of files and folders: paths of this machine, `file:` URIs, and URIs of whatever else fsspec knows."""

import os
from pathlib import Path


def is_local(path: str) -> bool:
    """Whether `path` is a path of this machine or a `file:` URI."""
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> Path:
    """Path of a file or folder of this machine, also by its `file:` URI; `~` is expanded."""
    return Path(os.path.expanduser(path.removeprefix("file://")))  # noqa: PTH111 - that one raises for `~nobody`


def absolute(path: str) -> str:
    """Absolute path where `path` is one of this machine, for processes with another working folder; a URI as it is."""
    return str(local_path(path).absolute()) if is_local(path) else path


def join(root: str, *parts: str) -> str:
    """Join a path or URI and names below it with single slashes."""
    root = root if root.endswith("://") else root.rstrip("/") + "/"
    return root + "/".join(part.strip("/") for part in parts)
