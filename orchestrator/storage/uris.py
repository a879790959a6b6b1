"""Names of files and folders: paths of this machine, `file:` URIs, and URIs of the stores in `SCHEMES`.

A `file:` URI is percent-encoded, as RFC 8089 says: `file:///my%20data` is the folder `/my data`. Keys of object stores
are names as they stand.
"""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import fsspec

from orchestrator.settings import check_scheme

_FILE = "file://"


def is_local(path: str) -> bool:
    """Whether `path` is a path of this machine or a `file:` URI."""
    return "://" not in path or path.startswith(_FILE)


def local_path(path: str) -> Path:
    """Path of a file or folder of this machine, also by its `file:` URI; `~` is expanded."""
    plain = unquote(path.removeprefix(_FILE)) if path.startswith(_FILE) else path
    return Path(os.path.expanduser(plain))  # noqa: PTH111 - that one raises for `~nobody`


def filesystem_of(uri: str) -> tuple[Any, str]:
    """fsspec's file system of a URI, and the path in it; it asks the store anew, as other processes write there.

    Raises: InputError for a scheme that is not in `SCHEMES`; ImportError where the scheme's package is not installed.
    """
    check_scheme(uri)
    filesystem, plain = fsspec.core.url_to_fs(uri)
    filesystem.invalidate_cache()
    return filesystem, str(plain)


def absolute(path: str) -> str:
    """Absolute path where `path` is one of this machine, for processes with another working folder; a URI as it is."""
    return str(local_path(path).absolute()) if is_local(path) else path


def join(root: str, *parts: str) -> str:
    """Join a path or URI and names below it with single slashes; a name is encoded where a `file:` URI needs it."""
    if root.startswith(_FILE):
        parts = tuple(map(quote, parts))
    root = root if root.endswith("://") else root.rstrip("/") + "/"
    return root + "/".join(part.strip("/") for part in parts)
