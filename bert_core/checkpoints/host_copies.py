"""Copies of tensors in the host's memory, which stay as they are while the tensors are trained on."""

from collections.abc import Mapping

import torch
from torch import Tensor


class HostCopies:
    """Memory of the host that tensors are copied into, the same at each time.

    For a GPU's tensors it is page-locked: the GPU then writes at the full speed of its bus, several times faster, and
    all copies are waited for once.
    """

    def __init__(self) -> None:
        self._copies: dict[str, Tensor] = {}

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copy the tensors. Those that were returned under the same names before are overwritten."""
        for name, tensor in tensors.items():
            copy = self._copies.get(name)
            if copy is None or copy.shape != tensor.shape or copy.dtype != tensor.dtype:
                copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
                self._copies[name] = copy
            copy.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.synchronize()
        return {name: self._copies[name] for name in tensors}
