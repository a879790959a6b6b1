"""Files on a local path or any URI that fsspec knows; what is written appears whole or not at all.

Local files go the way of `bert_core.checkpoints.atomic_files`; object stores put whole objects by their nature. Nothing
here lists a folder to find out what is true: manifests say that.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import fsspec

from bert_core.checkpoints.atomic_files import atomic_folder, atomic_write

MANIFEST_NAME = "manifest.json"
"""A folder's account of its files, by convention; it is written last, so that it vouches for them."""


def is_local(path: str) -> bool:
    """Whether `path` is a plain path (or a file: URI) of this machine."""
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> Path:
    """The path of a file or folder of this machine, `file://` or not; a `~` is somebody's home."""
    return Path(os.path.expanduser(path.removeprefix("file://")))  # noqa: PTH111 - that one raises for `~nobody`


def absolute(path: str) -> str:
    """A path of this machine from its root, for processes with another working folder; other URIs as they are."""
    return str(local_path(path).absolute()) if is_local(path) else path


def join(root: str, *parts: str) -> str:
    """`root/part/part`, whatever kind of path `root` is."""
    root = root if root.endswith("://") else root.rstrip("/") + "/"
    return root + "/".join(part.strip("/") for part in parts)


def write_bytes(path: str, data: bytes | memoryview) -> str:
    """Write a file whole or not at all; returns its SHA-256 as hexadecimal digits."""
    if is_local(path):
        target = local_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(target, lambda temporary: temporary.write_bytes(data))
    else:
        with fsspec.open(path, "wb") as file:
            file.write(data)
    return hashlib.sha256(data).hexdigest()


def write_json(path: str, value: Any) -> str:
    """Write readable JSON whole or not at all; returns its SHA-256."""
    return write_bytes(path, (json.dumps(value, indent=2, sort_keys=True) + "\n").encode())


def open_read(path: str) -> IO[bytes]:
    """A binary file to read from."""
    if is_local(path):
        return local_path(path).open("rb")
    file: IO[bytes] = fsspec.open(path, "rb").open()
    return file


def read_bytes(path: str) -> bytes:
    """All of a file. Raises: FileNotFoundError."""
    with open_read(path) as file:
        return file.read()


def read_json(path: str) -> Any:
    """A JSON file's value. Raises: FileNotFoundError, json.JSONDecodeError."""
    return json.loads(read_bytes(path))


def exists(path: str) -> bool:
    """Whether a file or folder of that name is there."""
    if is_local(path):
        return local_path(path).exists()
    filesystem, plain = fsspec.core.url_to_fs(path)
    return bool(filesystem.exists(plain))


def delete(path: str) -> None:
    """Remove a file or a folder with all it holds; one that is not there is fine."""
    if is_local(path):
        target = local_path(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target, onerror=_raise_unless_gone)
        else:
            target.unlink(missing_ok=True)
        return
    filesystem, plain = fsspec.core.url_to_fs(path)
    if filesystem.exists(plain):
        filesystem.rm(plain, recursive=True)


def _raise_unless_gone(_: object, __: str, problem: tuple[object, BaseException, object]) -> None:
    """Another process may have deleted the same thing; every other problem is one."""
    if not isinstance(problem[1], FileNotFoundError):
        raise problem[1]


def names_in(folder: str) -> list[str]:
    """What lies in a folder, hidden files too; nothing where there is none. To tidy up, not to find what is true."""
    filesystem, plain = fsspec.core.url_to_fs(folder)
    if not filesystem.isdir(plain):
        return []
    return sorted(Path(path).name for path in filesystem.ls(plain, detail=False))


def digest_file(path: str) -> str:
    """SHA-256 of a file's bytes, read in pieces."""
    with open_read(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def move_folder(source: str, target: str) -> None:
    """Give a folder another name on the same storage; a folder of that name is replaced."""
    delete(target)
    if is_local(source):
        path = local_path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        local_path(source).replace(path)
        return
    filesystem, plain = fsspec.core.url_to_fs(source)
    filesystem.mv(plain.rstrip("/") + "/", fsspec.core.url_to_fs(target)[1].rstrip("/") + "/", recursive=True)


@contextmanager
def write_folder(folder: str) -> Iterator[Path]:
    """An empty local folder to write files into; at the end of the block it takes the place of `folder`.

    On a local path the folder appears whole. On an object store its files appear one by one, the manifest last.
    """
    if is_local(folder):
        with atomic_folder(local_path(folder)) as scratch:
            yield scratch
        return
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as name:
        scratch = Path(name)
        yield scratch
        delete(folder)
        filesystem, plain = fsspec.core.url_to_fs(folder)
        files = {path.relative_to(scratch).as_posix(): path for path in scratch.rglob("*") if path.is_file()}
        for name in sorted(files, key=lambda name: (name == MANIFEST_NAME, name)):
            filesystem.put_file(str(files[name]), join(plain, name))  # piece by piece: a file may exceed the memory
