"""Folders, local or by URI: written as a whole, deleted, measured.

What is true of a folder stands in its manifest; listing it serves only to find what can be removed.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bert_core.checkpoints.manifest import MANIFEST_FILE, atomic_folder
from orchestrator.storage.hub import exists_on_hub, is_hub
from orchestrator.storage.uris import filesystem_of, is_local, join, local_path


def exists(path: str) -> bool:
    """Whether there is a file or folder of that name."""
    if is_local(path):
        return local_path(path).exists()
    if is_hub(path):
        return exists_on_hub(path)
    filesystem, plain = filesystem_of(path)
    return bool(filesystem.exists(plain))


def moved_path(path: str, storage: str) -> str:
    """The recorded path of a run's file, or the same one below another storage where only that is there: it was moved.

    A run's files lie below `runs/ID` of its storage.
    """
    _, mark, rest = path.rpartition("/runs/")
    if not mark or not is_local(path) or exists(path):
        return path
    moved = join(storage, "runs", rest)
    return moved if exists(moved) else path


def nearest_existing(path: Path) -> Path:
    """The path if it exists, else its nearest existing parent."""
    return next(above for above in (path, *path.parents) if above.exists())


def names_in(folder: str) -> list[str]:
    """Names of the files and folders in a folder, hidden ones too; none where there is no such folder."""
    if is_local(folder):
        path = local_path(folder)
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    filesystem, plain = filesystem_of(folder)
    if not filesystem.isdir(plain):
        return []
    # An object store may list the folder itself, by a marker, and keys that a person named `..`.
    keys = {str(key).rstrip("/") for key in filesystem.ls(plain, detail=False)} - {plain.rstrip("/")}
    return sorted({key.rpartition("/")[2] for key in keys} - {".", ".."})


def delete(path: str) -> None:
    """Delete a file, or a folder with all that it holds; nothing happens where there is none."""
    if is_local(path):
        target = local_path(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target, onerror=_raise_unless_gone)
        else:
            target.unlink(missing_ok=True)
        return
    filesystem, plain = filesystem_of(path)
    if filesystem.exists(plain):
        filesystem.rm(plain, recursive=True)


def _raise_unless_gone(_: object, __: str, problem: tuple[object, BaseException, object]) -> None:
    """Error handler of `shutil.rmtree`: ignore files that another process has deleted."""
    if not isinstance(problem[1], FileNotFoundError):
        raise problem[1]


@contextmanager
def write_folder(folder: str) -> Iterator[Path]:
    """Yield an empty local folder to write files into; at the end of the block it takes the place of `folder`.

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
        filesystem, plain = filesystem_of(folder)
        files = {path.relative_to(scratch).as_posix(): path for path in scratch.rglob("*") if path.is_file()}
        for name in sorted(files, key=lambda name: (name == MANIFEST_FILE, name)):
            filesystem.put_file(str(files[name]), join(plain, name))  # in pieces: a file may exceed the memory


def free_bytes(folder: str) -> int | None:
    """Bytes that this process can still write there; None for an object store, which has no such limit.

    The folder may be missing: its file system is that of the nearest folder above it that is there.
    """
    if not is_local(folder):
        return None
    return shutil.disk_usage(nearest_existing(local_path(folder).absolute())).free


def used_bytes(path: str) -> int:
    """Bytes of a file, or of all files of a folder; 0 where there is none."""
    if is_local(path):
        return sum(stats.st_size for stats in file_stats(local_path(path)))
    filesystem, plain = filesystem_of(path)
    return int(filesystem.du(plain)) if filesystem.exists(plain) else 0


def file_stats(path: Path) -> Iterator[os.stat_result]:
    """Stats of a file, or of all files of a folder; files that another process removes meanwhile are skipped."""
    inside = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    for file in [path] if path.is_file() else inside:
        with suppress(FileNotFoundError):
            yield file.lstat()
