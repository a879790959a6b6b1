"""Files and folders of the storage, local and by URI: whole or not at all, digests, listed, measured, deleted.

Run alone: pytest tests/orchestrator/storage/test_file_access.py
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator import storage
from orchestrator.storage.folders import file_stats, used_bytes

DATA = bytes(range(256)) * 100


@pytest.mark.heavy
def test_what_is_written_is_read_with_its_digest(root: str) -> None:
    path = storage.join(root, "deep", "er", "file.bin")
    assert not storage.exists(path)
    digest = storage.write_bytes(path, DATA)
    assert digest == hashlib.sha256(DATA).hexdigest() == storage.digest_file(path)
    assert storage.exists(path)
    assert storage.exists(storage.join(root, "deep"))
    assert storage.read_bytes(path) == DATA
    with storage.open_read(path) as file:
        file.seek(256)
        assert file.read(3) == b"\x00\x01\x02"


def test_json_is_readable_and_its_digest_is_the_files(root: str) -> None:
    path = storage.join(root, "a.json")
    digest = storage.write_json(path, {"b": [1, "é"], "a": None})
    assert storage.read_json(path) == {"a": None, "b": [1, "é"]}
    assert digest == storage.digest_file(path)
    assert storage.read_bytes(path).startswith(b'{\n  "a"')


def test_a_missing_file_is_not_found(root: str) -> None:
    for read in (storage.read_bytes, storage.read_json, storage.digest_file):
        with pytest.raises(FileNotFoundError):
            read(storage.join(root, "gone"))


def _failing(function: Callable[..., Any], fail_at: int, calls: list[int]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == fail_at:
            raise OSError(28, "No space left on device")
        return function(*args, **kwargs)

    return wrapped


def test_a_write_that_fails_anywhere_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    """Fail the n-th call to the system, n = 1, 2, 3 … until the write passes."""
    path = tmp_path / "file.bin"
    outcomes = []
    for fail_at in range(1, 20):
        storage.write_bytes(str(path), b"old")
        calls: list[int] = []
        with pytest.MonkeyPatch.context() as patched:
            for owner, name in ((Path, "mkdir"), (Path, "open"), (os, "fsync"), (Path, "replace"), (os, "open")):
                patched.setattr(owner, name, _failing(getattr(owner, name), fail_at, calls))
            try:
                storage.write_bytes(str(path), DATA)
                outcomes.append("written")
            except OSError:
                outcomes.append("failed")
        assert path.read_bytes() in ((b"old", DATA) if outcomes[-1] == "failed" else (DATA,))
        assert [file.name for file in tmp_path.iterdir()] == ["file.bin"], "no temporary file stays"
        if outcomes[-1] == "written":
            break
    assert outcomes[-1] == "written"
    assert outcomes.count("failed") >= 4


@pytest.mark.heavy
def test_files_and_folders_are_deleted_and_absence_is_fine(root: str) -> None:
    for name in ("folder/a", "folder/deep/b", "file"):
        storage.write_bytes(storage.join(root, name), DATA)
    storage.delete(storage.join(root, "folder"))
    storage.delete(storage.join(root, "file"))
    storage.delete(storage.join(root, "never"))
    for name in ("folder/a", "folder/deep/b", "file"):
        assert not storage.exists(storage.join(root, name))


def test_deleting_a_link_leaves_what_it_points_to(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    (target / "deep").mkdir(parents=True)
    link.symlink_to(target)
    storage.delete(str(link))
    assert not link.is_symlink()
    assert (target / "deep").is_dir()


def test_a_written_folder_has_its_folders_too(root: str) -> None:
    folder = storage.join(root, "index")
    for text in ("old", "new"):
        with storage.write_folder(folder) as scratch:
            (scratch / "deep").mkdir()
            for name in (f"{text}.txt", "manifest.json", "deep/manifest.json"):
                (scratch / name).write_text(text)
    assert storage.names_in(folder) == ["deep", "manifest.json", "new.txt"]
    assert storage.read_bytes(storage.join(folder, "deep", "manifest.json")) == b"new"


def test_names_in_a_folder(root: str) -> None:
    assert storage.names_in(root) == []
    for name in ("b", "a/deep", ".hidden"):
        storage.write_bytes(storage.join(root, name), DATA)
    assert storage.names_in(root) == [".hidden", "a", "b"]


def test_a_folder_takes_what_its_files_take(tmp_path: Path) -> None:
    for name in ("a", "deep/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"123")
    assert [used_bytes(str(tmp_path / name)) for name in ("", "a", "absent")] == [6, 3, 0]


def test_files_that_vanish_while_they_are_counted_are_skipped(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"1")
    stats = file_stats(tmp_path)
    sizes = [next(stats).st_size]
    for file in tmp_path.iterdir():
        file.unlink()
    assert sizes + [each.st_size for each in stats] == [1]
