"""Whole folders on a local path or any URI that fsspec knows."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import fsspec

from orchestrator.storage.files import delete, is_local, join, write_bytes

Returned = TypeVar("Returned")


def write_folder(path: str, fill: Callable[[Path], Returned]) -> Returned:
    """Let `fill` write files into an empty local folder, which then takes the place of what is at `path`.

    On a local path the folder appears whole. On an object store its files appear one by one, by name.
    """
    if is_local(path):
        target = Path(path.removeprefix("file://"))
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{target.name}.{uuid4().hex[:8]}.tmp")
        scratch.mkdir()
        try:
            returned = fill(scratch)
            delete(path)
            scratch.replace(target)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        return returned
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as name:
        returned = fill(Path(name))
        delete(path)
        for file in sorted(Path(name).iterdir()):
            write_bytes(join(path, file.name), file.read_bytes())
    return returned


def move_folder(source: str, target: str) -> None:
    """Give a folder another name on the same storage; a folder of that name is replaced."""
    delete(target)
    if is_local(source):
        path = Path(target.removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        Path(source.removeprefix("file://")).replace(path)
        return
    filesystem, plain = fsspec.core.url_to_fs(source)
    filesystem.mv(plain.rstrip("/") + "/", fsspec.core.url_to_fs(target)[1].rstrip("/") + "/", recursive=True)
