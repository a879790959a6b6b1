"""Manifest of a folder: SHA-256 digests that tell whether its files are whole and unchanged.

Safetensors loads a file with a flipped bit without a word; the manifest finds it. It is written last.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from bert_core.checkpoints.atomic_files import atomic_write_text
from bert_core.errors import CheckpointError, NewerFormatError

MANIFEST_FILE = "manifest.json"
_FORMAT = 1


def json_text(value: Any) -> str:
    """Turn a value into the readable JSON that every JSON file of the project holds."""
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON, whole or not at all."""
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
    """Compute the SHA-256 of a file's bytes, as hexadecimal digits."""
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
