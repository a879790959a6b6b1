"""Micro-batches where memory runs out: a batch goes through the model in smaller parts, and stays the same batch.

How much goes through at a time is the spec's until memory runs out, and then half of what was tried. Losses of parts
add up to that of the batch, up to the order of additions. What a part is, a subclass says.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from bert_core.micro_batches import first_line
from orchestrator.errors import RunFailedError

B = TypeVar("B")


class MicroBatchSize(ABC, Generic[B]):
    """Size of the micro-batches of a training.

    Args:
        size: the spec's; None for a whole batch.
        warn: told, in one line, that memory ran out and what is done about it.
    """

    field: str
    """Name of the size in the spec."""
    unit: str = "examples"
    """Name of what the size counts."""
    whole: ClassVar[str]
    """Name of what stays the same, as a person is told."""
    remedy: ClassVar[str]
    """Remedy where a single example is too much."""

    def __init__(self, size: int | None, warn: Callable[[str], None]) -> None:
        self._size_of_spec, self._warn = size, warn
        self.size = size
        """Size of a micro-batch at most, in the unit; None for a whole batch."""

    @abstractmethod
    def split(self, batch: B) -> list[B]:
        """Cut a batch into its micro-batches."""

    @abstractmethod
    def num_examples(self, part: B) -> int:
        """Count the examples of a micro-batch."""

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
        """Take less at a time, and tell where memory ran out."""
        self.size = size
        self._warn(
            f"memory ran out {where}; from here on {size:,} at a time, at the same {self.whole}: "
            f"{self.field} {size} does so from the start"
        )

    @property
    def has_shrunk(self) -> bool:
        """Whether memory ran out, so that less is taken at a time than the spec says."""
        return self.size != self._size_of_spec


def check_can_shrink(num_examples: int, step: int | None, reason: str, remedy: str) -> None:
    """Check that the largest part tried has more than one example. Raises: RunFailedError."""
    if num_examples <= 1:
        where = "" if step is None else f" at step {step}"
        raise RunFailedError(f"memory ran out{where} with one example at a time ({first_line(reason)}); {remedy}")
