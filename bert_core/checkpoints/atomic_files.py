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
