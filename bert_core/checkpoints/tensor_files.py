"""Files of tensors: safetensors, and those of `torch.save` as far as they hold nothing but tensors."""

import math
import re
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bert_core.errors import CheckpointError

_ZIP = b"PK\x03\x04"


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors into a new file, for those to read whom the process's umask allows.

    The library alone makes a file that nobody but its owner reads, which is of no use on shared storage.
    """
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    save_file(dict(tensors), path, metadata=None if metadata is None else dict(metadata))
    path.chmod(mode)


@torch.no_grad()
def load_weights(path: Path) -> dict[str, Tensor]:
    """Read a `.safetensors` file, or one of `torch.save`; no code that a file may hold is run.

    Raises: CheckpointError for a file that is broken, holds more than tensors, or a weight that is not finite.
    """
    try:
        tensors = load_file(path) if path.suffix == ".safetensors" else _load_pickle(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is cut short or broken ({error}); fetch or save the folder anew") from None
    for name, tensor in tensors.items():
        is_number = tensor.is_floating_point() and tensor.itemsize > 1 and tensor.numel() > 0
        if is_number and not all(math.isfinite(extreme) for extreme in tensor.aminmax()):
            raise CheckpointError(
                f"{path}: the weight {name} is not finite (NaN or infinity), so that nothing can be computed with it; "
                "use the weights of an earlier checkpoint, or fetch the folder anew"
            )
    return tensors


def _load_pickle(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings(action="ignore"):
            # Files of torch before 1.6 are no zip archives, which alone can be mapped.
            with path.open("rb") as file:
                is_archive = file.read(len(_ZIP)) == _ZIP
            values: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    except OSError:
        raise
    except Exception as error:  # a broken pickle fails in any way
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        if wanted:
            raise CheckpointError(
                f"{path} is a pickle that asks for {wanted[1]} beside tensors, and such code is not run; fetch "
                "model.safetensors in its place, or save the model's state_dict alone there"
            ) from None
        raise CheckpointError(
            f"{path} is cut short, or no file that torch.save has written; fetch or save the folder anew"
        ) from None
    if not isinstance(values, dict) or not values:
        raise CheckpointError(f"{path} holds no weights by name; save the model's state_dict there")
    for name, value in values.items():
        if not isinstance(value, Tensor) or value.layout != torch.strided or value.device.type != "cpu":
            raise CheckpointError(f"{path}: {name!r} is no dense tensor; save the model's state_dict alone there")
    return {str(name): value.detach() for name, value in values.items()}
