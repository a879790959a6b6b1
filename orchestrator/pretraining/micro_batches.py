"""Micro-batches of a worker: how many examples go through the model at a time. The global batch stays as it is.

The size is the spec's until memory runs out on a worker, and then half of what was tried. Sums over micro-batches add
up to the same loss and gradient, up to the order of additions. Dropout is drawn for each micro-batch, so the size is
part of a checkpoint, and all workers take the smallest one wherever a checkpoint may be written.
"""

from collections.abc import Callable

import torch
import torch.distributed

from bert_core.examples.packing import PackedBatch
from orchestrator.errors import RunFailedError
from orchestrator.pretraining.collectives import Worker


class MicroBatches:
    """Size of the micro-batches of one worker.

    Args:
        size: examples of a micro-batch at most; None for the worker's whole part of a batch.
        warn: told, in one line, that memory ran out and what is done about it.
    """

    def __init__(self, worker: Worker, size: int | None, warn: Callable[[str], None]) -> None:
        self._worker, self._warn = worker, warn
        self.size = size

    def size_for(self, batch: PackedBatch) -> int:
        """Return the number of examples to take at a time from a worker's part of a batch."""
        return min(self.size or batch.num_sequences, batch.num_sequences)

    def halve(self, tried: int, step: int, reason: str) -> None:
        """Take half as many examples at a time as were tried. Raises: RunFailedError where one alone was too much."""
        if tried == 1:
            raise RunFailedError(
                f"memory ran out at step {step} with one example at a time ({_first_line(reason)}); use a smaller "
                "model, lower phases.max_seq_length, or take a device with more memory"
            )
        self._shrink(tried // 2, f"at step {step} with {tried} examples at a time ({_first_line(reason)})")

    def agree(self) -> None:
        """Take the smallest size of any worker, on all workers at once."""
        if self._worker.num_workers == 1:
            return
        none_yet = torch.iinfo(torch.int64).max
        smallest = torch.tensor(self.size or none_yet, device=self._worker.device)
        torch.distributed.all_reduce(smallest, op=torch.distributed.ReduceOp.MIN)
        if int(smallest) < (self.size or none_yet):
            self._shrink(int(smallest), "on another worker")

    def _shrink(self, size: int, where: str) -> None:
        self.size = size
        self._warn(
            f"memory ran out {where}; from here on {size} at a time, at the same global batch: micro_batch_size {size} "
            "does so from the start"
        )


def _first_line(reason: str) -> str:
    return reason.strip().partition("\n")[0]
