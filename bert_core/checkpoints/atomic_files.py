"""Files and folders that appear whole or not at all: a temporary name beside the place, fsync, rename, fsync."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4


def atomic_write(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place."""
    temporary = _beside(path)
    try:
        write(temporary)
        sync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_whole_text(path: Path, text: str) -> None:
    """A text in UTF-8, with line ends as they are in `text`."""
    atomic_write(path, lambda temporary: temporary.write_bytes(text.encode()))


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to write files into; at the end of the block it takes the place of `folder`.

    A folder that stood there stands until then, and stays when the block fails.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(folder)
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.rglob("*"):
            sync(file)
        _put_in_place(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync(folder.parent)


def _put_in_place(temporary: Path, folder: Path) -> None:
    """Rename; what stood there is renamed first, since no system swaps two folders in one step everywhere."""
    replaced = temporary.with_suffix(".old")
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


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex[:8]}.tmp")
