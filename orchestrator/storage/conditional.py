"""Files that several processes replace: read, thought over, and written only where nobody has written in between.

On S3 the write itself is conditional (`If-Match`, `If-None-Match`), so of two processes that read the same file one
writes and the other is told. Elsewhere it is an ordinary write.
"""

from typing import Any, NamedTuple

from orchestrator.storage.file_access import read_bytes, write_bytes
from orchestrator.storage.uris import filesystem_of

_S3 = ("s3://", "s3a://")
_REFUSED = {"PreconditionFailed", "ConditionalRequestConflict"}
"""Codes with which a store answers that the condition does not hold, or that another write is at work."""


class SeenFile(NamedTuple):
    """A file as it was read."""

    data: bytes | None
    """All bytes; None where there was no file."""
    tag: str | None
    """The store's ETag of these bytes; None where there was no file, or where the store has no conditional writes."""


def read_seen(path: str) -> SeenFile:
    """Read a file that is to be replaced; it may be missing."""
    while True:
        try:
            if not path.startswith(_S3):
                return SeenFile(read_bytes(path), None)
            filesystem, plain = filesystem_of(path)
            with filesystem.open(plain, "rb") as file:
                return SeenFile(file.read(), str(file.details["ETag"]))  # s3fs reads with `If-Match` of that tag
        except FileNotFoundError:
            return SeenFile(None, None)
        except OSError as error:
            if _code(error) not in _REFUSED:
                raise


def replace_seen(path: str, data: bytes, seen: SeenFile) -> bool:
    """Write a file in the place of what was seen; False, and nothing is written, where it is another by now."""
    if not path.startswith(_S3):
        write_bytes(path, data)
        return True
    filesystem, plain = filesystem_of(path)
    bucket, key, _ = filesystem.split_path(plain)
    condition = {"IfNoneMatch": "*"} if seen.tag is None else {"IfMatch": seen.tag}
    try:
        filesystem.call_s3("put_object", Bucket=bucket, Key=key, Body=data, **condition)
    except OSError as error:
        if _code(error) in _REFUSED or (seen.tag is not None and isinstance(error, FileNotFoundError)):
            return False
        raise
    return True


def _code(error: BaseException) -> str | None:
    """The store's name of an error, which s3fs has turned into one of Python's."""
    cause: BaseException | None = error
    while cause is not None:
        response: dict[str, Any] = getattr(cause, "response", {})
        if "Error" in response:
            return str(response["Error"].get("Code"))
        cause = cause.__cause__
    return None
