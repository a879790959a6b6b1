"""Collective operations of workers: sum numbers, compare first steps."""

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


def refuse_if_unequal(step: int, worker: Worker) -> None:
    """Check that all workers begin at the same step.

    A worker that could not read the newest checkpoint falls back to an older one, alone.

    Raises: RuntimeError, at which Ray starts the workers anew.
    """
    if worker.num_workers == 1:
        return
    highest = torch.tensor([step, -step], device=worker.device)
    torch.distributed.all_reduce(highest, op=torch.distributed.ReduceOp.MAX)
    first, last = -int(highest[1]), int(highest[0])
    if first != last:
        raise RuntimeError(f"workers found different checkpoints: of step {first} and of step {last}")
