"""Losses beside what test_heads.py compares with transformers; batches in smaller parts.

Alone: pytest tests/bert_core/test_losses.py
"""

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F

from bert_core.constants import IGNORE_INDEX
from bert_core.errors import DataError
from bert_core.losses import cross_entropy_sums, sequence_classification_loss, span_loss
from bert_core.micro_batches import compute_in_parts
from tests.synchronizations import counted_synchronizations


def test_cross_entropy_sums_count_right_guesses() -> None:
    logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
    loss, correct, count = cross_entropy_sums(logits, torch.tensor([0, 1, 1]))
    torch.testing.assert_close(loss, 3 * F.cross_entropy(logits, torch.tensor([0, 1, 1])))
    assert (float(correct), float(count)) == (2.0, 3.0)


def test_cross_entropy_sums_leave_ignored_labels_out() -> None:
    logits, labels = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]), torch.tensor([1, IGNORE_INDEX, 0])
    with counted_synchronizations() as waits:
        sums = cross_entropy_sums(logits, labels)
    torch.testing.assert_close(sums, cross_entropy_sums(logits[[0, 2]], labels[[0, 2]]))
    assert waits == []


def test_cross_entropy_of_sixteen_bit_logits_is_summed_in_full_precision() -> None:
    loss, _, _ = cross_entropy_sums(torch.zeros(5000, 4, dtype=torch.bfloat16), torch.zeros(5000, dtype=torch.long))
    assert float(loss) == pytest.approx(5000 * 1.3862944, rel=1e-5)


def test_positions_outside_the_row_are_left_out() -> None:
    logits = torch.randn(3, 4)
    inside = span_loss(logits[:2], logits[:2], torch.tensor([1, 2]), torch.tensor([3, 0]))
    beside = span_loss(logits, logits, torch.tensor([1, 2, 9]), torch.tensor([3, 0, 4]))
    torch.testing.assert_close(inside, beside)


@pytest.mark.parametrize(
    ("labels", "kind"), [([0, 3], None), ([-1, 0], None), ([0], None), ([0.0, 0.0, 0.0], "regression")]
)
def test_labels_that_are_no_classes_or_of_another_shape_are_refused(labels: list, kind: str | None) -> None:
    with pytest.raises(DataError, match="labels"):
        sequence_classification_loss(torch.zeros(2, 3), torch.tensor(labels), kind)


def test_labels_left_out_are_no_mistake() -> None:
    logits = torch.randn(2, 3)
    loss = sequence_classification_loss(logits, torch.tensor([-100, 2]), None)
    torch.testing.assert_close(loss, F.cross_entropy(logits[1:], torch.tensor([2])))
    assert sequence_classification_loss(logits, torch.tensor([-100, -100]), None).isnan(), "the mean of no losses"


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
