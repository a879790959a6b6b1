"""Whole folders on a local path or any URI that fsspec knows."""

from pathlib import Path

import fsspec

from orchestrator.storage.files import delete, is_local


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
