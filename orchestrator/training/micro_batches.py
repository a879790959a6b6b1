"""Gradient accumulation where memory runs out: the micro-batch is halved, and the batch stays the same.

Losses of micro-batches add up to that of the batch, up to the order of additions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from bert_core.micro_batches import first_line
from orchestrator.base.errors import RunFailedError

B = TypeVar("B")


class MicroBatchSize(ABC, Generic[B]):
    """Size of the micro-batches of a training; a subclass knows what a batch is.

    Args:
        size: the spec's; None for a whole batch.
        warn: told, in one line, that memory ran out and what is done about it.
    """

    field: str
    """Name of the size in the spec."""
    unit: str = "examples"
    whole: ClassVar[str]
    """Name of what stays the same."""
    remedy: ClassVar[str]
    """Remedy where a single example is too much."""

    def __init__(self, size: int | None, warn: Callable[[str], None]) -> None:
        self._size_of_spec, self._warn = size, warn
        self.size = size
        """Size of a micro-batch at most, in the unit; None for a whole batch."""

    @abstractmethod
    def split(self, batch: B) -> list[B]: ...

    @abstractmethod
    def num_examples(self, part: B) -> int: ...

    def measure(self, part: B) -> int:
        """Count a micro-batch in the unit."""
        return self.num_examples(part)

    def halve(self, tried: Sequence[B], step: int | None, reason: str) -> None:
        """Take half as much at a time as was tried. Raises: RunFailedError where one example alone was too much."""
        check_can_shrink(max(map(self.num_examples, tried)), step, reason, self.remedy)
        largest = max(map(self.measure, tried))
        if self.size is not None:  # an example larger than the size is a micro-batch nevertheless
            largest = min(largest, self.size)
        self.shrink(largest // 2, f"at step {step} with {largest:,} {self.unit} at a time ({first_line(reason)})")

    def shrink(self, size: int, where: str) -> None:
        """Take less at a time, and warn where memory ran out."""
        self.size = size
        self._warn(
            f"memory ran out {where}; from here on {size:,} at a time, at the same {self.whole}: "
            f"{self.field} {size} does so from the start"
        )


def check_can_shrink(num_examples: int, step: int | None, reason: str, remedy: str) -> None:
    """Check that the largest part tried has more than one example. Raises: RunFailedError."""
    if num_examples <= 1:
        where = "" if step is None else f" at step {step}"
        raise RunFailedError(f"memory ran out{where} with one example at a time ({first_line(reason)}); {remedy}")
