"""Out-of-memory recovery: a batch that needs too much memory is computed again in micro-batches half as large."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import torch

B = TypeVar("B")
T = TypeVar("T")

_OUT_OF_MEMORY = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDA error: out of memory")
"""Words of libraries that take memory of their own, beside PyTorch's."""


class MicroBatchSizes(Protocol[B]):
    """Size of the micro-batches that go through the model."""

    def split(self, batch: B) -> list[B]:
        """Cut a batch into what goes through at a time."""

    def halve(self, tried: Sequence[B], step: int | None, reason: str) -> None:
        """Take half as much at a time as was tried; `reason` has torch's words. Raises where that was one example."""


def compute_in_parts(
    sizes: MicroBatchSizes[B],
    batch: B,
    step: int | None,
    compute: Callable[[list[B]], T],
    forget: Callable[[], None] = lambda: None,
) -> T:
    """Compute something of a batch cut into parts; where memory runs out, anew with parts half as large.

    Args:
        step: number of the training step for messages, from 1; None outside of a training.
        forget: called after memory ran out, to drop what the failed try left.

    Raises: what `MicroBatchSizes.halve` raises where memory runs out with a single example.
    """
    while True:
        parts = sizes.split(batch)
        try:
            return compute(parts)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error)
        # Outside of `except`, which holds on to the failed try's tensors.
        forget()
        sizes.halve(parts, step, reason)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def is_out_of_memory(error: Exception) -> bool:
    """Whether a device's memory ran out: PyTorch's own says so by its class, a library or the driver by its words."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)
    )


def first_line(reason: str) -> str:
    """First line of torch's words on the memory, which go on with numbers and advice."""
    return reason.strip().partition("\n")[0]
