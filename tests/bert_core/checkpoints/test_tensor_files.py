"""Files of tensors. Alone: pytest tests/bert_core/checkpoints/test_tensor_files.py"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bert_core.checkpoints.tensor_files import save_tensors


@pytest.fixture(params=[0o022, 0o077, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_those_read_a_file_whom_the_umask_allows(umask: int, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors({"a": torch.arange(3)}, path, {"format": "pt"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert load_file(path)["a"].tolist() == [0, 1, 2]
