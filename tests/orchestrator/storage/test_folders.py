"""Folders are moved, locally and on an object store. Run alone: pytest tests/orchestrator/storage/test_folders.py"""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from orchestrator.storage import exists, join, read_bytes, write_bytes
from orchestrator.storage.folders import move_folder


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path)
    else:
        yield "memory://folders"
        fsspec.filesystem("memory").rm("/folders", recursive=True)


def test_moved_folder_replaces_its_target(root: str) -> None:
    for name in ("new/a", "new/b", "runs/model/old"):
        write_bytes(join(root, name), name.encode())
    move_folder(join(root, "new"), join(root, "runs/model"))
    assert not exists(join(root, "new"))
    assert not exists(join(root, "runs/model/old"))
    assert read_bytes(join(root, "runs/model/b")) == b"new/b"
