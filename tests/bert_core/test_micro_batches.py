"""Which errors are a device's memory that ran out. Alone: .venv/bin/pytest tests/bert_core/test_micro_batches.py"""

from collections.abc import Sequence

import pytest
import torch

from bert_core.micro_batches import compute_in_parts

MEMORY = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
)


class Halves:
    """Parts of a list, as many numbers each as there is room for."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.reasons: list[str] = []

    def split(self, batch: list[int]) -> list[list[int]]:
        return [batch[begin : begin + self.room] for begin in range(0, len(batch), self.room)]

    def halve(self, tried: Sequence[list[int]], step: int | None, reason: str) -> None:
        self.room //= 2
        self.reasons.append(reason)


def total(error: Exception, parts: list[list[int]]) -> int:
    """Sum of the parts, where none has more than two numbers."""
    if max(map(len, parts)) > 2:
        raise error
    return sum(map(sum, parts))


@pytest.mark.parametrize("error", MEMORY, ids=["PyTorch's", "cuBLAS's", "the driver's"])
def test_memory_that_ran_out_is_known_by_class_or_words(error: Exception) -> None:
    halves = Halves(8)
    assert compute_in_parts(halves, list(range(8)), 1, lambda parts: total(error, parts)) == 28
    assert halves.reasons == [str(error)] * 2


def test_another_error_is_no_reason_for_smaller_parts() -> None:
    halves = Halves(8)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        compute_in_parts(
            halves, list(range(8)), 1, lambda parts: total(RuntimeError("CUDA error: an illegal memory access"), parts)
        )
    assert halves.room == 8
