"""Whole folders, local and on an object store. Run alone: pytest tests/orchestrator/storage/test_folders.py"""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from orchestrator.storage import exists, join, read_bytes
from orchestrator.storage.folders import move_folder, write_folder


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path)
    else:
        yield "memory://folders"
        fsspec.filesystem("memory").rm("/folders", recursive=True)


def fill(folder: Path) -> int:
    (folder / "a").write_bytes(b"first")
    (folder / "b").write_bytes(b"second")
    return 2


def test_folder_appears_and_the_filler_is_heard(root: str) -> None:
    assert write_folder(join(root, "deep/model"), fill) == 2
    assert read_bytes(join(root, "deep/model/b")) == b"second"


def test_folder_replaces_what_was_there(root: str) -> None:
    path = join(root, "model")
    write_folder(path, fill)
    write_folder(path, lambda folder: (folder / "c").write_bytes(b"other"))
    assert not exists(join(path, "a"))
    assert read_bytes(join(path, "c")) == b"other"


def test_folder_that_fails_leaves_the_old_one_and_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_folder(str(path), fill)

    def fail(folder: Path) -> None:
        (folder / "a").write_bytes(b"half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        write_folder(str(path), fail)
    assert (path / "a").read_bytes() == b"first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_moved_folder_replaces_its_target(root: str) -> None:
    write_folder(join(root, "new"), fill)
    write_folder(join(root, "runs/model"), lambda folder: (folder / "old").write_bytes(b""))
    move_folder(join(root, "new"), join(root, "runs/model"))
    assert not exists(join(root, "new"))
    assert not exists(join(root, "runs/model/old"))
    assert read_bytes(join(root, "runs/model/a")) == b"first"
