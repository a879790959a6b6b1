"""Copies of remote files and folders on this machine; each version is downloaded once for all processes.

    CACHE/<key>/          one version: the key is a digest of the URI and of each file's name, size and version
        .lock             held by the process that downloads
        <name>            the file, or the folder with its files

A file appears under its name when it is complete: downloaded under another name, of the listed size, and with the
SHA-256 that the folder's manifest has for it. A remote file that changes has another version, so another key. Versions
that were not used for the longest time are removed when the cache exceeds `MAX_CACHE_BYTES`, except those that a living
process works with: each process keeps a shared lock on the folders it was given.

Two processes that download the same version at once: one does, the other waits for its lock. Where the file system has
no locks, both download, and the cache is not trimmed.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from bert_core.checkpoints.manifest import MANIFEST_FILE, atomic_write
from bert_core.errors import CheckpointError
from orchestrator.base.errors import InputError
from orchestrator.base.settings import CACHE_VARIABLE, cache_folder
from orchestrator.storage.file_access import digest_file
from orchestrator.storage.hub import hub_copy, is_hub
from orchestrator.storage.uris import filesystem_of, is_local, local_path, version_of

MAX_CACHE_BYTES = 20 << 30
_HELD: dict[Path, int] = {}
"""Open descriptors of the cache's folders that this process works with: its shared locks."""


@dataclass(frozen=True)
class RemoteFile:
    """Facts that a storage tells of one file: name, size, version."""

    key: str
    num_bytes: int | None
    version: str
    """Text that changes when the file does."""


def local_copy(path: str, skip: Collection[str] = ()) -> Path:
    """Find a file or folder on this machine: itself where it is local, else a copy in this machine's cache.

    Nobody may write into the copy.

    Args:
        skip: names of files in a folder that are not needed; they may be missing in the copy.

    Raises: InputError for a key that leads out of the folder, and for a cache that cannot be written; CheckpointError
    where nothing is there, or where what arrives is not what the storage or the manifest says.
    """
    if is_local(path):
        return local_path(path)
    if is_hub(path):
        return hub_copy(path, skip)
    filesystem, plain = filesystem_of(path)
    if PurePosixPath(plain).name == "..":
        raise InputError(f"{path} ends in '..', which no copy can be called; write the address without it")
    files = _list_files(filesystem, plain, path)
    root = cache_folder()
    rows = [[name, file.num_bytes, file.version] for name, file in files.items()]
    entry = root / hashlib.sha256(json.dumps([path.rstrip("/"), rows]).encode()).hexdigest()[:32]
    copy = entry / (PurePosixPath(plain).name or "files")
    wanted = {copy / name: file for name, file in files.items() if name not in skip}
    try:
        _hold(entry)
    except OSError as error:
        raise InputError(
            f"the cache folder {root} cannot be written: {error.strerror}; name another in {CACHE_VARIABLE}"
        ) from error
    if not all(map(_is_complete, wanted, wanted.values())):
        with (entry / ".lock").open("w") as lock:  # where the file system has locks, the only process that downloads
            _lock(lock.fileno(), fcntl.LOCK_EX)
            _download(filesystem, wanted, copy)
        _trim(root)
    return copy


def _list_files(filesystem: Any, plain: str, path: str) -> dict[str, RemoteFile]:
    """The files of a folder by their names in it; a single file has the empty name."""
    if filesystem.isfile(plain):
        return {"": _remote_file(plain, filesystem.info(plain))}
    root = plain.rstrip("/") + "/"
    found = filesystem.find(root, detail=True)
    files = {str(key).removeprefix(root): _remote_file(str(key), found[key]) for key in sorted(found)}
    files.pop("", None)  # a marker that some tools write for the folder itself
    for name, file in files.items():
        _check_key(name, file, files, path)
    if not files:
        raise CheckpointError(f"there is nothing at {path}; check the address")
    return files


def _check_key(name: str, file: RemoteFile, files: Collection[str], path: str) -> None:
    """Check that a key of an object store can be a file of the copy, inside its folder. Raises: InputError."""
    place = PurePosixPath(name)
    leads_out, is_a_folder = ".." in place.parts, any(str(folder) in files for folder in place.parents)
    if name.startswith("/") or leads_out or "\0" in name or name != str(place) or is_a_folder:
        shown = file.key.replace("\0", "\\0")
        raise InputError(f"{path} has the key {shown}, which cannot be a file's name in a folder; rename it there")


def _remote_file(key: str, info: Mapping[str, Any]) -> RemoteFile:
    if (version := version_of(info)) is None:
        raise InputError(f"{key} is on a storage that tells no version of a file; copy it to a folder first")
    return RemoteFile(key, info.get("size"), version)


def _is_complete(target: Path, file: RemoteFile) -> bool:
    return target.is_file() and file.num_bytes in (target.stat().st_size, None)


def _download(filesystem: Any, wanted: Mapping[Path, RemoteFile], copy: Path) -> None:
    """Download the files that are not there yet, the manifest first: it has the digests of the others."""
    for target in sorted(wanted, key=lambda target: (target != copy / MANIFEST_FILE, target)):
        file = wanted[target]
        if _is_complete(target, file):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(target, partial(_fetch, filesystem, file, _manifest_digest(copy, target)))


def _fetch(filesystem: Any, file: RemoteFile, digest: str | None, target: Path) -> None:
    """Download a file and compare its size and, where it is known, its SHA-256."""
    filesystem.get_file(file.key, str(target))
    num_bytes = target.stat().st_size
    if file.num_bytes not in (num_bytes, None):
        raise CheckpointError(f"{num_bytes} of the {file.num_bytes} bytes of {file.key} have arrived; try again")
    if digest is not None and digest_file(str(target)) != digest:
        raise CheckpointError(
            f"{file.key} is altered: its SHA-256 is not the one in {MANIFEST_FILE} beside it; put it there again"
        )


def _manifest_digest(copy: Path, target: Path) -> str | None:
    """SHA-256 that a folder's manifest has for one of its files; None where it has none."""
    try:
        entry = json.loads((copy / MANIFEST_FILE).read_bytes())["files"][target.relative_to(copy).as_posix()]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    digest = entry.get("sha256") if isinstance(entry, dict) else entry
    return digest if isinstance(digest, str) else None


def _hold(entry: Path) -> None:
    """Make a version's folder, and keep a shared lock on it until this process ends."""
    while True:
        entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        entry.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):  # trimmed by another process in between: make it again
            os.utime(entry)
            if entry in _HELD and _is_same(entry, _HELD[entry]):
                return
            descriptor = os.open(entry, os.O_RDONLY)
            _lock(descriptor, fcntl.LOCK_SH)
            if _is_same(entry, descriptor):
                _HELD[entry] = descriptor
                return
            os.close(descriptor)


def _is_same(entry: Path, descriptor: int) -> bool:
    return entry.exists() and os.path.samestat(entry.stat(), os.fstat(descriptor))


def _lock(descriptor: int, operation: int) -> None:
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, operation)


def downloads(root: Path) -> list[Path]:
    """Folders of versions in a cache, which also holds compiled layers."""
    return [entry for entry in root.iterdir() if re.fullmatch("[0-9a-f]{32}", entry.name)]


def _trim(root: Path) -> None:
    """Evict the least recently used versions beyond the bound, except those in use."""
    with suppress(OSError):  # another process trims too, or this one may not: the next download tries again
        entries = sorted(downloads(root), key=lambda entry: entry.stat().st_mtime)
        sizes = {entry: sum(file.lstat().st_size for file in entry.rglob("*")) for entry in entries}
        excess = sum(sizes.values()) - MAX_CACHE_BYTES
        for entry in entries:
            if excess > 0 and remove_unless_held(entry):
                excess -= sizes[entry]


def remove_unless_held(entry: Path) -> bool:
    """Remove a version's folder; returns False where a living process works with it, or it cannot be removed."""
    descriptor = os.open(entry, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
