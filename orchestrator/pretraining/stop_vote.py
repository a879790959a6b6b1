"""Vote of a step: whether any worker wanted to stop when the step began. All workers read the same."""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class StopVote:
    """Number of workers that want to stop, on its way to the host.

    On a GPU it is copied as the step's first work, behind nothing but the steps before. Who reads it when the next step
    has been put in line waits, if at all, until the device has come to the beginning of the step it belongs to, and a
    whole step is in line behind that: the device never stands still for it.
    """

    num_stopping: Tensor
    arrived: Any = None
    """Event of the device, behind the copy; None where the number is the host's from the beginning."""

    @classmethod
    def sent(cls, num_stopping: Tensor) -> Self:
        """Send a number of a device, of shape [], to the host."""
        if not num_stopping.is_cuda:
            return cls(num_stopping)
        copy = torch.empty((), dtype=num_stopping.dtype, pin_memory=True)
        copy.copy_(num_stopping, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record(torch.cuda.current_stream(num_stopping.device))
        return cls(copy, arrived)

    def is_to_stop(self) -> bool:
        """Whether any worker wanted to stop; waits until the device has come to the beginning of the vote's step."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return bool(self.num_stopping)
