"""Files and folders that appear whole or not at all.

Run alone: pytest tests/bert_core/checkpoints/test_atomic_files.py
"""

import os
from pathlib import Path

import pytest

from bert_core.checkpoints.atomic_files import atomic_folder, atomic_write
from bert_core.checkpoints.manifest import write_json


def test_broken_off_write_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    write_json(tmp_path / "file", 1)

    def write(path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        atomic_write(tmp_path / "file", write)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "1\n")]


def test_failed_fsync_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "file", 1)

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write_json(tmp_path / "file", 2)
    assert (tmp_path / "file").read_text() == "1\n"


def test_folder_takes_the_place_of_the_older_one(tmp_path: Path) -> None:
    for number in (1, 2):
        with atomic_folder(tmp_path / "models" / "best") as folder:
            (folder / f"file-{number}").write_text("whole")
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["best"]
    assert [path.name for path in (tmp_path / "models" / "best").iterdir()] == ["file-2"]


def test_broken_off_folder_leaves_the_older_one_and_nothing_else(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "best") as folder:
        (folder / "file").write_text("older")
    with pytest.raises(FileNotFoundError), atomic_folder(tmp_path / "best") as folder:
        (folder / "no folder" / "file").write_text("newer")
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert (tmp_path / "best" / "file").read_text() == "older"


def test_folder_that_cannot_take_its_place_leaves_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with atomic_folder(tmp_path / "best") as folder:
        (folder / "file").write_text("older")
    rename = Path.rename

    def fail_for_new(path: Path, target: Path) -> Path:
        if path.name.endswith(".tmp") and not path.name.endswith(".old.tmp"):
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_for_new)
    with pytest.raises(OSError, match="Input/output"), atomic_folder(tmp_path / "best") as folder:
        (folder / "file").write_text("newer")
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert (tmp_path / "best" / "file").read_text() == "older"
