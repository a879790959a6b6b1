"""Folders of the storage, local and by URI: written, listed, deleted.

Run alone: pytest tests/orchestrator/storage/test_folders.py
"""

from pathlib import Path

import pytest

from orchestrator import storage

DATA = b"data"


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
