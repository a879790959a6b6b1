"""The axes of a search space: a list of values, or a range of numbers.

An axis says which values one setting takes in a search, and turns any share in [0, 1) of its length into one of them.
So an algorithm that draws shares needs no branch for the kind of axis. A spec writes an axis as a mapping of one key,
the name of the class's one field: `{log_uniform: [1e-5, 1e-3]}`. A new kind is a class here and its name in `AnyAxis`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

Scalar = bool | int | float | str


class Axis(ABC):
    """One dimension of a search space."""

    @property
    def written(self) -> tuple[Scalar, ...]:
        """The values that stand in the spec: those listed, or the two bounds of a range."""
        (values,) = vars(self).values()
        return tuple(values)

    @property
    def listed(self) -> tuple[Scalar, ...] | None:
        """All values of an axis that lists them, in order; None for a range."""
        return None

    def __post_init__(self) -> None:
        if self.listed is None and float(self.written[0]) >= float(self.written[1]):
            low, high = self.written
            raise ValueError(f"the lower bound {low:g} must be below the upper bound {high:g}")

    @abstractmethod
    def value_at(self, share: float) -> Scalar:
        """The value at a share in [0, 1) of the axis's length; even shares give even values on the axis's scale."""


@dataclass(frozen=True)
class Choices(Axis):
    """One of several values."""

    choice: tuple[Scalar, ...]

    @property
    def listed(self) -> tuple[Scalar, ...]:
        return self.choice

    def value_at(self, share: float) -> Scalar:
        return self.choice[int(share * len(self.choice))]


@dataclass(frozen=True)
class Uniform(Axis):
    """A number between a lower and an upper bound."""

    uniform: tuple[float, float]

    def value_at(self, share: float) -> float:
        low, high = self.uniform
        return low + share * (high - low)


@dataclass(frozen=True)
class LogUniform(Axis):
    """A number between a lower and an upper bound, even on a logarithmic scale."""

    log_uniform: tuple[float, float]

    def __post_init__(self) -> None:
        if self.log_uniform[0] <= 0:
            raise ValueError(f"the lower bound {self.log_uniform[0]:g} must be above 0 on a logarithmic scale")
        super().__post_init__()

    def value_at(self, share: float) -> float:
        low, high = self.log_uniform
        return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))


@dataclass(frozen=True)
class IntUniform(Axis):
    """A whole number between a lower and an upper bound, both included."""

    int_uniform: tuple[int, int]

    def value_at(self, share: float) -> int:
        first, last = self.int_uniform
        return first + int(share * (last - first + 1))


AnyAxis = Choices | Uniform | LogUniform | IntUniform
"""Every kind of axis that a spec can hold."""

Space = Mapping[str, Axis]
"""The axes of a search by the name of the setting that each varies."""

Point = Mapping[str, Scalar]
"""One value for each axis of a space."""
