"""Copies of tensors in the host's memory, which stay as they are while the tensors are trained on."""

import logging
from collections.abc import Mapping

import torch
from torch import Tensor

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
