"""Versions of remote files, as their store lists them: a changed file is never taken for the one of before."""

from collections.abc import Mapping
from typing import Any

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


def version_of(info: Mapping[str, Any]) -> str | None:
    """Text that changes when the file does; None where the store lists nothing of the kind."""
    return next((str(info[field]) for field in VERSION_FIELDS if info.get(field)), None)
