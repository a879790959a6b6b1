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
from bert_core.micro_batches import first_line
from orchestrator.pretraining.collectives import Worker
from orchestrator.specs import PretrainSpec
from orchestrator.training.micro_batches import MicroBatchSize, check_can_shrink

EVALUATION_BATCH_SIZE = 64
_REMEDY = "use a smaller model, lower phases.max_seq_length, or take a device with more memory"


class MicroBatches(MicroBatchSize[PackedBatch]):
    """Size of the micro-batches of one worker.

    Args:
        spec: says what is counted, and how much is taken at a time before memory runs out.
        warn: told, in one line, that memory ran out and what is done about it.
    """

    whole = "global batch"
    remedy = _REMEDY

    def __init__(self, worker: Worker, spec: PretrainSpec, warn: Callable[[str], None]) -> None:
        self._worker = worker
        self._counts_tokens = spec.micro_batch_tokens is not None
        self.unit = "tokens" if self._counts_tokens else "examples"
        self.field = "micro_batch_tokens" if self._counts_tokens else "micro_batch_size"
        super().__init__(getattr(spec, self.field), warn)

    def split(self, batch: PackedBatch) -> list[PackedBatch]:
        """Cut a worker's part of a batch into its micro-batches."""
        if self.size is None:
            return [batch]
        return batch.split_by_tokens(self.size) if self._counts_tokens else batch.split(self.size)

    def num_examples(self, part: PackedBatch) -> int:
        return part.num_sequences

    def measure(self, part: PackedBatch) -> int:
        """Count the tokens or the sequences of a micro-batch."""
        return len(part.input_ids) if self._counts_tokens else part.num_sequences

    def agree(self) -> None:
        """Take the smallest size of any worker, on all workers at once."""
        if self._worker.num_workers == 1:
            return
        none_yet = torch.iinfo(torch.int64).max
        smallest = torch.tensor(self.size or none_yet, device=self._worker.device)
        torch.distributed.all_reduce(smallest, op=torch.distributed.ReduceOp.MIN)
        if int(smallest) < (self.size or none_yet):
            self.shrink(int(smallest), "on another worker")

    def state(self) -> dict[str, int | None]:
        """The size, under its name in a checkpoint."""
        return {self.field: self.size}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the size of a checkpoint; where it has none, the spec's."""
        self.size = state.get(self.field, self._size_of_spec)


class EvaluationSizes:
    """Sizes of what is evaluated at a time: 64 examples, and no more than a micro-batch once memory ran out in a step.

    Args:
        micro_batches: those of the training.
        warn: told, in one line, that memory ran out and what is done about it.
    """

    def __init__(self, micro_batches: MicroBatches, warn: Callable[[str], None]) -> None:
        self._micro_batches, self._warn = micro_batches, warn
        self._num_examples = EVALUATION_BATCH_SIZE

    def split(self, batch: PackedBatch) -> list[PackedBatch]:
        """Cut a worker's part of the held-out examples into what goes through at a time."""
        parts = batch.split(self._num_examples)
        if not self._micro_batches.has_shrunk:
            return parts
        return [micro for part in parts for micro in self._micro_batches.split(part)]

    def halve(self, tried: Sequence[PackedBatch], step: int | None, reason: str) -> None:
        """Take half as much at a time as was tried. Raises: RunFailedError where one example alone was too much."""
        largest = max(part.num_sequences for part in tried)
        check_can_shrink(largest, step, reason, _REMEDY)
        self._num_examples = largest // 2
        self._warn(
            f"memory ran out in the evaluation at step {step} with {largest:,} examples at a time "
            f"({first_line(reason)}); from here on {self._num_examples:,} at a time"
        )
