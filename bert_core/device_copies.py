"""Copies between the host and a device that neither waits for: batches, results, and the state of a checkpoint."""

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALIGNMENT = 256
"""Alignment of the tensors within a transfer, in bytes: that of a GPU's allocator."""


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


Store = Callable[[NDArray[np.int64], NDArray[np.float32]], None]
"""Function that takes the numbers of a batch's rows, and their results."""


class AsyncReads:
    """Asynchronous copies of results to the host: a batch's are stored after the next batch was launched.

    A read from a GPU waits until the GPU has come so far: were each batch read before the next one is launched, the GPU
    would stand still while the host makes that one. Results on a CPU are stored at once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._coming: tuple[NDArray[np.int64], Tensor, torch.cuda.Event] | None = None

    def add(self, rows: NDArray[np.int64], values: Tensor) -> None:
        """Begin to copy a batch's results, float32, to the host, and store those of the batch before it."""
        if not values.is_cuda:
            self._store(rows, values.numpy())
            return
        copy = values.to("cpu", non_blocking=True)  # page-locked memory, which torch takes for such a copy
        arrived = torch.cuda.current_stream(values.device).record_event()
        self.finish()
        self._coming = rows, copy, arrived

    def finish(self) -> None:
        """Wait for the results that are not stored yet, if there are any, and store them."""
        if self._coming is not None:
            rows, copy, arrived = self._coming
            arrived.synchronize()
            self._store(rows, copy.numpy())
            self._coming = None  # now: where waiting failed for want of memory, a later call waits again


logger = logging.getLogger(__name__)


class HostCopies:
    """Memory of the host that tensors are copied into, the same at each time.

    For a GPU's tensors it is page-locked: the GPU then writes at the full speed of its bus, several times faster, and
    all copies are waited for once. Where the host cannot lock so much, it is ordinary memory, for good.
    """

    def __init__(self) -> None:
        self._copies: dict[str, Tensor] = {}
        self._locks_pages = True

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copy the tensors. Those that were returned under the same names before are overwritten."""
        for name, tensor in tensors.items():
            copy = self._copies.get(name)
            if copy is None or copy.shape != tensor.shape or copy.dtype != tensor.dtype:
                copy = self._copies[name] = self._memory_for(tensor)
            copy.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            torch.cuda.synchronize(device)
        return {name: self._copies[name] for name in tensors}

    def _memory_for(self, tensor: Tensor) -> Tensor:
        """Make memory of a tensor's shape and type; page-locked for a GPU's, where that can be had."""
        if tensor.is_cuda and self._locks_pages:
            try:
                return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            except RuntimeError as error:
                self._locks_pages = False
                logger.warning(
                    "no page-locked memory for the copy of a checkpoint (%s): ordinary memory is used, and copies take "
                    "several times longer; raise the host's memory, or the limit that `ulimit -l` shows",
                    str(error).partition("\n")[0],
                )
        return torch.empty(tensor.shape, dtype=tensor.dtype)
