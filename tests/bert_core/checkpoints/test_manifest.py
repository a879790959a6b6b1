"""The manifest of a folder. Run alone: pytest tests/bert_core/checkpoints/test_manifest.py

That damage is found is shown in test_pretrained.py and test_training_state.py.
"""

import hashlib
from pathlib import Path

import pytest

from bert_core.checkpoints.manifest import check_manifest, write_json, write_manifest
from bert_core.errors import CheckpointError


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
