"""Micro-batches of a worker: how much goes through the model at a time. The global batch stays as it is.

A micro-batch has a number of examples at most or, where the spec says `micro_batch_tokens`, of tokens: without padding,
its time and memory follow its tokens. The size is the spec's until memory runs out on a worker, and then half of what
was tried. Sums over micro-batches add up to the same loss and gradient, up to the order of additions. Dropout is drawn
for each micro-batch, so the size is part of a checkpoint, and all workers take the smallest one wherever a checkpoint
may be written. Workers may have different numbers of micro-batches: they send their gradients once in a step.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed

from bert_core.examples.packing import PackedBatch
from orchestrator.errors import RunFailedError
from orchestrator.pretraining.collectives import Worker
from orchestrator.specs import PretrainSpec

EVALUATION_BATCH_SIZE = 64
T = TypeVar("T")


class Sizes(Protocol):
    """Amount that goes through the model at a time."""

    def split(self, batch: PackedBatch) -> list[PackedBatch]:
        """Cut a worker's part of a batch into what goes through at a time."""

    def halve(self, tried: Sequence[PackedBatch], step: int, reason: str) -> None:
        """Take half as much at a time as was tried. Raises: RunFailedError where one example alone was too much."""


def compute_in_parts(
    sizes: Sizes,
    batch: PackedBatch,
    step: int,
    compute: Callable[[list[PackedBatch]], T],
    forget: Callable[[], None] = lambda: None,
) -> T:
    """Compute something of a batch cut into parts; where memory runs out, anew with parts half as large.

    Args:
        step: counts from 1, as in what a person is told.
        forget: called after memory ran out, to drop what the failed try left.

    Raises: RunFailedError where memory runs out with a single example.
    """
    while True:
        parts = sizes.split(batch)
        try:
            return compute(parts)
        except torch.OutOfMemoryError as error:
            reason = str(error)
        # Outside of `except`, which holds on to the failed try's tensors.
        forget()
        sizes.halve(parts, step, reason)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


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
        self.size: int | None = self._size_of_spec
        """Tokens or examples of a micro-batch at most; None for a worker's whole part of a batch."""

    def split(self, batch: PackedBatch) -> list[PackedBatch]:
        """Cut a worker's part of a batch into its micro-batches."""
        if self.size is None:
            return [batch]
        return batch.split_by_tokens(self.size) if self._counts_tokens else batch.split(self.size)

    def halve(self, tried: Sequence[PackedBatch], step: int, reason: str) -> None:
        """Take half as much at a time as was tried. Raises: RunFailedError where one example alone was too much."""
        _check_can_shrink(tried, step, reason)
        largest = max(len(part.input_ids) if self._counts_tokens else part.num_sequences for part in tried)
        if self.size is not None:  # a sequence longer than the size is a micro-batch nevertheless
            largest = min(largest, self.size)
        self._shrink(largest // 2, f"at step {step} with {largest:,} {self._unit} at a time ({_first_line(reason)})")

    @property
    def has_shrunk(self) -> bool:
        """Whether memory ran out, so that less is taken at a time than the spec says."""
        return self.size != self._size_of_spec

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

    def halve(self, tried: Sequence[PackedBatch], step: int, reason: str) -> None:
        """Take half as much at a time as was tried. Raises: RunFailedError where one example alone was too much."""
        _check_can_shrink(tried, step, reason)
        largest = max(part.num_sequences for part in tried)
        self._num_examples = largest // 2
        self._warn(
            f"memory ran out in the evaluation at step {step} with {largest:,} examples at a time "
            f"({_first_line(reason)}); from here on {self._num_examples:,} at a time"
        )


def _check_can_shrink(tried: Sequence[PackedBatch], step: int, reason: str) -> None:
    if all(part.num_sequences == 1 for part in tried):
        raise RunFailedError(
            f"memory ran out at step {step} with one example at a time ({_first_line(reason)}); use a smaller "
            "model, lower phases.max_seq_length, or take a device with more memory"
        )


def _first_line(reason: str) -> str:
    return reason.strip().partition("\n")[0]
