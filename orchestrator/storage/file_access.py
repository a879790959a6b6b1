"""Reading and writing of single files, local or by URI; a file that is written appears whole or not at all.

Local files are written under a temporary name, which `bert_core.checkpoints.manifest` describes; object stores put
whole objects by their nature.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from bert_core.checkpoints.manifest import atomic_write, digest_stream, json_text
from orchestrator.storage.hub import hub_files, is_hub, open_hub
from orchestrator.storage.uris import filesystem_of, is_local, local_path


def write_bytes(path: str, data: bytes | memoryview) -> str:
    """Write a file; returns its SHA-256 as hexadecimal digits."""
    if is_local(path):
        target = local_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(target, lambda temporary: temporary.write_bytes(data))
    else:
        filesystem, plain = filesystem_of(path)
        with filesystem.open(plain, "wb") as file:
            file.write(data)
    return hashlib.sha256(data).hexdigest()


def write_chunks(path: str, chunks: Iterable[bytes]) -> str:
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
    """Open a file for reading bytes."""
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
    """Compute the SHA-256 of a file's bytes, without holding all of them in memory; of several the digests' digest."""
    paths = list(map(str, hub_files(path))) if is_hub(path) else [path]
    if len(paths) > 1:
        return hashlib.sha256("".join(map(digest_file, paths)).encode()).hexdigest()
    with open_read(paths[0]) as file:
        return digest_stream(file)
