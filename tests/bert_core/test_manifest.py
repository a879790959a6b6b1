"""Files that appear whole or not at all. Run alone: pytest tests/bert_core/test_manifest.py

That damage is found is shown in test_pretrained.py and test_training_state.py.
"""

import hashlib
import os
from pathlib import Path

import pytest

from bert_core.errors import CheckpointError
from bert_core.manifest import check_manifest, write_json, write_manifest, write_whole


def test_broken_off_write_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    write_json(tmp_path / "file", 1)

    def write(path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "file", write)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "1\n")]


def test_failed_fsync_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "file", 1)

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write_json(tmp_path / "file", 2)
    assert (tmp_path / "file").read_text() == "1\n"


def test_manifest_is_named_by_its_own_digest(tmp_path: Path) -> None:
    write_json(tmp_path / "file", 1)
    digest = write_manifest(tmp_path, ["file"])
    assert digest == hashlib.sha256((tmp_path / "manifest.json").read_bytes()).hexdigest()
    check_manifest(tmp_path, "fetch it anew")


def test_error_ends_in_the_remedy(tmp_path: Path) -> None:
    write_json(tmp_path / "file", 1)
    write_manifest(tmp_path, ["file"])
    write_json(tmp_path / "file", 2)
    with pytest.raises(CheckpointError, match=r"file is altered: .*; fetch it anew$"):
        check_manifest(tmp_path, "fetch it anew")
