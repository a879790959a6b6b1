"""Workers of a group, and the sum of their numbers."""

from dataclasses import dataclass, field

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
