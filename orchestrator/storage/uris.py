"""Names of files and folders: paths of this machine, `file:` URIs, and URIs of the stores in `SCHEMES`.

A `file:` URI is percent-encoded, as RFC 8089 says: `file:///my%20data` is the folder `/my data`. Keys of object stores
are names as they stand.
"""

import errno
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from orchestrator.base.settings import check_scheme

S3 = ("s3://", "s3a://")
_FILE = "file://"
VERSION_FIELDS = (
    "ETag",  # s3fs
    "mtime",  # gcsfs: the time of the last write, in microseconds; pyarrow's file systems
    "LastModified",
    "created",  # fsspec's memory
    "etag",  # adlfs (Azure), gcsfs
    "generation",  # gcsfs
    "md5Hash",
    "last_modified",  # adlfs
    "updated",
)
"""Names that fsspec's file systems have for a file's version; the first one with a value is used.

The order is part of the name of a token store that was built from remote files: what is new goes to the end.
"""


def is_local(path: str) -> bool:
    """Whether `path` is a path of this machine or a `file:` URI."""
    return "://" not in path or path.startswith(_FILE)


def local_path(path: str) -> Path:
    """Path of a file or folder of this machine, also by its `file:` URI; `~` is expanded."""
    plain = unquote(path.removeprefix(_FILE)) if path.startswith(_FILE) else path
    return Path(os.path.expanduser(plain))  # noqa: PTH111 - that one raises for `~nobody`


def filesystem_of(uri: str) -> tuple[Any, str]:
    """fsspec's file system of a URI, and the path in it; it asks the store anew, as other processes write there.

    What fails when it asks the store is an OSError, an outage and missing credentials included.

    Raises: InputError for a scheme that is not in `SCHEMES`; ImportError where the scheme's package is not installed.
    """
    check_scheme(uri)
    import fsspec  # files of this machine need none

    filesystem, plain = fsspec.core.url_to_fs(uri)
    if uri.startswith(S3):
        filesystem = _with_os_errors(filesystem.__class__)(**filesystem.storage_options)
    filesystem.invalidate_cache()
    return filesystem, str(plain)


@cache
def _with_os_errors(s3: Any) -> Any:
    """A subclass of s3fs's file system, which lets botocore's errors of connections and credentials through."""
    from botocore.exceptions import BotoCoreError
    from fsspec.asyn import sync_wrapper

    class S3FileSystem(s3):  # type: ignore[misc]
        async def _call_s3(self, *arguments: Any, **options: Any) -> Any:
            try:
                return await super()._call_s3(*arguments, **options)
            except BotoCoreError as error:
                raise OSError(errno.EIO, str(error), f"s3://{options.get('Bucket', '')}") from error

        call_s3 = sync_wrapper(_call_s3)

        def _walk(self, path: str, maxdepth: int | None = None, **options: Any) -> Any:
            # By default fsspec leaves out what an OSError keeps it from listing.
            return super()._walk(path, maxdepth, **{"on_error": "raise", **options})

    return S3FileSystem


def absolute(path: str) -> str:
    """Absolute path where `path` is one of this machine, for processes with another working folder; a URI as it is."""
    return str(local_path(path).absolute()) if is_local(path) else path


def join(root: str, *parts: str) -> str:
    """Join a path or URI and names below it with single slashes; a name is encoded where a `file:` URI needs it."""
    if root.startswith(_FILE):
        parts = tuple(map(quote, parts))
    root = root if root.endswith("://") else root.rstrip("/") + "/"
    return root + "/".join(part.strip("/") for part in parts)


def version_of(info: Mapping[str, Any]) -> str | None:
    """Text that changes when the file does; None where the store lists nothing of the kind."""
    return next((str(info[field]) for field in VERSION_FIELDS if info.get(field)), None)
