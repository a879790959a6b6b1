"""Workers of a group, and the sum of their numbers."""

from dataclasses import dataclass, field
from typing import Any, Self

import torch
import torch.distributed
from torch import Tensor


@dataclass(frozen=True)
class Worker:
    """A process that trains: which part of the work it does, and on which device."""

    rank: int = 0
    num_workers: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


def all_reduce_sum(values: Tensor, worker: Worker) -> None:
    """Add values up over all workers, in place."""
    if worker.num_workers > 1:
        torch.distributed.all_reduce(values)


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
