"""Collective operations of workers: sum numbers and gradients, compare first steps."""

from dataclasses import dataclass, field

import torch
import torch.distributed
from torch import Tensor, nn


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


def all_reduce_gradients(parameters: list[nn.Parameter], worker: Worker) -> None:
    """Add all gradients up over all workers, in place, as one flat tensor: one message a step."""
    if worker.num_workers == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    torch.distributed.all_reduce(flat)
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, summed in zip(gradients, torch.split(flat, sizes), strict=True):
        gradient.copy_(summed.view_as(gradient))


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
