"""Files of tensors, in the format safetensors."""

import stat
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors into a new file, for those to read whom the process's umask allows.

    The library alone makes a file that nobody but its owner reads, which is of no use on shared storage.
    """
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    save_file(dict(tensors), path, metadata=None if metadata is None else dict(metadata))
    path.chmod(mode)
