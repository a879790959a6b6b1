"""Files and folders that appear whole or not at all, and a folder's manifest: SHA-256 digests of its files.

What is written has a temporary name beside its place; then fsync, rename, fsync.

Safetensors loads a file with a flipped bit without a word; the manifest finds it. It is written last.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from bert_core.errors import CheckpointError, NewerFormatError


def atomic_write(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place."""
    temporary = _beside(path)
    try:
        write(temporary)
        sync(temporary)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        _name_folder(error, temporary)
        raise
    sync(path.parent)


def atomic_write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, whole or not at all, with line ends as they are in `text`."""
    atomic_write(path, lambda temporary: temporary.write_bytes(text.encode()))


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write files into, which takes the place of `folder` at the end of the block.

    An older folder of that name is there until then, and stays when the block fails.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(folder)
    try:
        temporary.mkdir()
        yield temporary
        for file in temporary.rglob("*"):
            sync(file)
        _put_in_place(temporary, folder)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        _name_folder(error, temporary)
        raise
    sync(folder.parent)


def _put_in_place(temporary: Path, folder: Path) -> None:
    """Rename the new folder; the older one is renamed first, as not every system swaps two folders in one step."""
    replaced = temporary.with_suffix(".old.tmp")
    with suppress(FileNotFoundError):
        folder.rename(replaced)
    try:
        temporary.rename(folder)
    except BaseException:
        with suppress(FileNotFoundError):
            replaced.rename(folder)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name_folder(error: BaseException, temporary: Path) -> None:
    """Let an error about a temporary name, which says nothing to a person, name the folder that it is in."""
    if isinstance(error, OSError) and error.filename == str(temporary):
        error.filename = str(temporary.parent.absolute())


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex[:8]}.tmp")


MANIFEST_FILE = "manifest.json"
_FORMAT = 1


def json_text(value: Any) -> str:
    """Turn a value into the readable JSON that every JSON file of the project holds."""
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def write_json(path: Path, value: Any) -> None:
    atomic_write_text(path, json_text(value))


def check_format(path: Path, values: Mapping[str, Any], known: int) -> None:
    """Compare the number of a JSON file's format with the newest one that is known; a file without one has the first.

    Raises: NewerFormatError; TypeError where the number is none.
    """
    found = values.get("format", 1)
    if found > known:
        raise NewerFormatError(
            f"{path} was written by a newer version of this package (format {found}, this one reads {known}); "
            "go on with that version"
        )


def digest_stream(stream: IO[bytes]) -> str:
    """Compute the SHA-256 of the bytes of an open file, as hexadecimal digits, without holding all of them."""
    return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return digest_stream(file)


def write_manifest(folder: Path, names: Iterable[str]) -> str:
    """Record the digests of a folder's files; returns the digest of the manifest itself."""
    files = {name: {"sha256": digest_file(folder / name), "bytes": (folder / name).stat().st_size} for name in names}
    write_json(folder / MANIFEST_FILE, {"files": files})
    return digest_file(folder / MANIFEST_FILE)


def check_manifest(folder: Path, remedy: str) -> None:
    """Compare a folder's files with its manifest.

    Raises: CheckpointError, naming the file that is missing, cut short or altered, and ending in `remedy`;
        NewerFormatError for the manifest of a newer version.
    """
    path = folder / MANIFEST_FILE
    try:
        values = json.loads(path.read_bytes())
        check_format(path, values, _FORMAT)
        recorded = {str(name): (str(entry["sha256"]), int(entry["bytes"])) for name, entry in values["files"].items()}
    except NewerFormatError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); {remedy}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointError(f"{path} is cut short or altered; {remedy}") from None
    for name, (digest, num_bytes) in recorded.items():
        file = folder / name
        if not file.is_file():
            raise CheckpointError(f"{file} is missing, though {MANIFEST_FILE} lists it; {remedy}")
        if file.stat().st_size != num_bytes:
            raise CheckpointError(f"{file} has {file.stat().st_size} bytes instead of {num_bytes}; {remedy}")
        if digest_file(file) != digest:
            raise CheckpointError(f"{file} is altered: its SHA-256 is not the one in {MANIFEST_FILE}; {remedy}")
