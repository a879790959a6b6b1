"""Micro-batches of a worker: how much goes through the model at a time. The global batch stays as it is.

A micro-batch has a number of examples at most or, where the spec says `micro_batch_tokens`, of tokens: without padding,
its time and memory follow its tokens. The size is the spec's until memory runs out on a worker, and then half of what
was tried. Sums over micro-batches add up to the same loss and gradient, up to the order of additions. Dropout is drawn
for each micro-batch, so the size is part of a checkpoint, and all workers take the smallest one wherever a checkpoint
may be written. Workers may have different numbers of micro-batches: they send their gradients once in a step.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed

from bert_core.examples.packing import PackedBatch
from orchestrator.errors import RunFailedError
from orchestrator.pretraining.collectives import Worker
from orchestrator.specs import PretrainSpec


class MicroBatches:
    """Size of the micro-batches of one worker.

    Args:
        spec: says what is counted, and how much is taken at a time before memory runs out.
        warn: told, in one line, that memory ran out and what is done about it.
    """

    def __init__(self, worker: Worker, spec: PretrainSpec, warn: Callable[[str], None]) -> None:
        self._worker, self._warn = worker, warn
        self._counts_tokens = spec.micro_batch_tokens is not None
        self._unit = "tokens" if self._counts_tokens else "examples"
        self._field = "micro_batch_tokens" if self._counts_tokens else "micro_batch_size"
        self._size_of_spec: int | None = getattr(spec, self._field)
        self.size = self._size_of_spec
        """Tokens or examples of a micro-batch at most; None for a worker's whole part of a batch."""

    def split(self, batch: PackedBatch) -> list[PackedBatch]:
        """Cut a worker's part of a batch into its micro-batches."""
        if self.size is None:
            return [batch]
        return batch.split_by_tokens(self.size) if self._counts_tokens else batch.split(self.size)

    def halve(self, tried: Sequence[PackedBatch], step: int, reason: str) -> None:
        """Take half as much at a time as was tried. Raises: RunFailedError where one example alone was too much."""
        if all(part.num_sequences == 1 for part in tried):
            raise RunFailedError(
                f"memory ran out at step {step} with one example at a time ({_first_line(reason)}); use a smaller "
                "model, lower phases.max_seq_length, or take a device with more memory"
            )
        largest = max(len(part.input_ids) if self._counts_tokens else part.num_sequences for part in tried)
        if self.size is not None:  # a sequence longer than the size is a micro-batch nevertheless
            largest = min(largest, self.size)
        self._shrink(largest // 2, f"at step {step} with {largest:,} {self._unit} at a time ({_first_line(reason)})")

    def agree(self) -> None:
        """Take the smallest size of any worker, on all workers at once."""
        if self._worker.num_workers == 1:
            return
        none_yet = torch.iinfo(torch.int64).max
        smallest = torch.tensor(self.size or none_yet, device=self._worker.device)
        torch.distributed.all_reduce(smallest, op=torch.distributed.ReduceOp.MIN)
        if int(smallest) < (self.size or none_yet):
            self._shrink(int(smallest), "on another worker")

    def state(self) -> dict[str, int | None]:
        """The size, under its name in a checkpoint."""
        return {self._field: self.size}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the size of a checkpoint; where it has none, the spec's."""
        self.size = state.get(self._field, self._size_of_spec)

    def _shrink(self, size: int, where: str) -> None:
        self.size = size
        self._warn(
            f"memory ran out {where}; from here on {size:,} at a time, at the same global batch: {self._field} {size} "
            "does so from the start"
        )


def _first_line(reason: str) -> str:
    return reason.strip().partition("\n")[0]
