"""Copies of a batch's tensors from the host to a device, without waiting for the device."""

from collections.abc import Iterator, Mapping
from itertools import accumulate

import torch
from torch import Tensor

_ALIGNMENT = 256
"""Bytes at whose multiples a tensor begins, as memory that a GPU's allocator gives."""


def copy_together(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Copy tensors to a device, in their order; from the host to a GPU all in one transfer.

    A GPU reads page-locked memory while the host goes on. From ordinary memory each tensor is a transfer of its own,
    and beyond some 64 KB the host waits until the GPU has come so far.
    """
    if device.type != "cuda" or any(tensor.device.type != "cpu" for tensor in tensors.values()):
        return {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
    *places, num_bytes = accumulate(
        (-(-each.nbytes // _ALIGNMENT) * _ALIGNMENT for each in tensors.values()), initial=0
    )
    # Page-locked memory that is given back is used again only after the copies from it have ended.
    pinned = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)
    for part, tensor in zip(_parts(pinned, places, tensors), tensors.values(), strict=True):
        part.copy_(tensor)
    return dict(zip(tensors, _parts(pinned.to(device, non_blocking=True), places, tensors), strict=True))


def _parts(memory: Tensor, places: list[int], tensors: Mapping[str, Tensor]) -> Iterator[Tensor]:
    """Yield the part of some memory that begins at each place, as a tensor of the same type and shape."""
    for place, tensor in zip(places, tensors.values(), strict=True):
        yield memory[place : place + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
