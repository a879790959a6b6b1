"""Reading and writing of single files, local or by URI; a file that is written appears whole or not at all.

Local files are written under a temporary name, which `bert_core.checkpoints.manifest` describes; object stores put
whole objects by their nature.

A file that several processes replace is read, thought over, and written only where nobody has written in between. On S3
the write itself is conditional (`If-Match`, `If-None-Match`), so of two processes that read the same file one writes
and the other is told. Elsewhere it is an ordinary write.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

from bert_core.checkpoints.manifest import atomic_write, digest_stream, json_text
from orchestrator.storage.hub import hub_files, is_hub, open_hub
from orchestrator.storage.uris import S3, filesystem_of, is_local, local_path

_REFUSED = {"PreconditionFailed", "ConditionalRequestConflict"}
"""Codes with which a store answers that the condition does not hold, or that another write is at work."""


def write_bytes(path: str, data: bytes | memoryview) -> str:
    """Write a file; returns its SHA-256 as hexadecimal digits."""
    return write_chunks(path, [data])


def write_chunks(path: str, chunks: Iterable[bytes | memoryview]) -> str:
    """Write a file of any size piece by piece; returns its SHA-256 as hexadecimal digits."""
    digest = hashlib.sha256()

    def write(target: Path) -> None:
        with target.open("wb") as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)

    if is_local(path):
        target = local_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(target, write)
    else:
        filesystem, plain = filesystem_of(path)
        with tempfile.TemporaryDirectory(prefix="orchestrator-") as folder:
            scratch = Path(folder) / "file"
            write(scratch)  # an upload that breaks off in the middle of the pieces would be kept as it is
            filesystem.put_file(str(scratch), plain)
    return digest.hexdigest()


def write_json(path: str, value: Any) -> str:
    """Write a value as readable JSON; returns the file's SHA-256."""
    return write_bytes(path, json_text(value).encode())


def open_read(path: str) -> IO[bytes]:
    if is_local(path):
        return local_path(path).open("rb")
    if is_hub(path):
        return open_hub(path)
    filesystem, plain = filesystem_of(path)
    file: IO[bytes] = filesystem.open(plain, "rb")
    return file


def read_bytes(path: str) -> bytes:
    """Read all of a file. Raises: FileNotFoundError."""
    with open_read(path) as file:
        return file.read()


def read_json(path: str) -> Any:
    """Read the value of a JSON file. Raises: FileNotFoundError, json.JSONDecodeError."""
    return json.loads(read_bytes(path))


def digest_file(path: str) -> str:
    """SHA-256 of a file, read in pieces; for a pattern of several files, the digest of their digests."""
    paths = list(map(str, hub_files(path))) if is_hub(path) else [path]
    if len(paths) > 1:
        return hashlib.sha256("".join(map(digest_file, paths)).encode()).hexdigest()
    with open_read(paths[0]) as file:
        return digest_stream(file)


class VersionedFile(NamedTuple):
    data: bytes | None
    tag: str | None
    """The store's ETag of these bytes; None where there was no file, or where the store has no conditional writes."""


def read_versioned(path: str) -> VersionedFile:
    """Read a file that is to be replaced; it may be missing."""
    while True:
        try:
            if not path.startswith(S3):
                return VersionedFile(read_bytes(path), None)
            filesystem, plain = filesystem_of(path)
            with filesystem.open(plain, "rb") as file:
                return VersionedFile(file.read(), str(file.details["ETag"]))  # s3fs reads with `If-Match` of that tag
        except FileNotFoundError:
            return VersionedFile(None, None)
        except OSError as error:
            if _code(error) not in _REFUSED:
                raise


def replace_if_unchanged(path: str, data: bytes, seen: VersionedFile) -> bool:
    """Compare and swap: write the file if it is still what was seen, else return False."""
    if not path.startswith(S3):
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
        response: dict[str, Any] = getattr(cause, "response", None) or {}
        if "Error" in response:
            return str(response["Error"].get("Code"))
        cause = cause.__cause__
    return None
