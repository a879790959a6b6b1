"""The axes of a search space: listed values and ranges."""

from typing import Annotated, TypeVar

from pydantic import Field, field_validator

from orchestrator.specs.fields import Section, identity

Scalar = bool | int | float | str
_Number = TypeVar("_Number", int, float)


class Choice(Section):
    """One of several values."""

    choice: tuple[Scalar, ...] = identity(doc="The values.", min_length=1)


class Uniform(Section):
    """A number between two bounds."""

    uniform: tuple[float, float] = identity(doc="Lower and upper bound.")

    @field_validator("uniform")
    @classmethod
    def _ordered(cls, bounds: tuple[float, float]) -> tuple[float, float]:
        return _ordered_bounds(bounds)


class LogUniform(Section):
    """A number between two bounds, even on a logarithmic scale."""

    log_uniform: tuple[float, float] = identity(doc="Lower and upper bound.")

    @field_validator("log_uniform")
    @classmethod
    def _ordered(cls, bounds: tuple[float, float]) -> tuple[float, float]:
        if bounds[0] <= 0:
            raise ValueError(f"the lower bound {bounds[0]:g} must be above 0 on a logarithmic scale")
        return _ordered_bounds(bounds)


class IntUniform(Section):
    """A whole number between two bounds, both included."""

    int_uniform: tuple[int, int] = identity(doc="Lower and upper bound.")

    @field_validator("int_uniform")
    @classmethod
    def _ordered(cls, bounds: tuple[int, int]) -> tuple[int, int]:
        return _ordered_bounds(bounds)


def _ordered_bounds(bounds: tuple[_Number, _Number]) -> tuple[_Number, _Number]:
    if bounds[0] >= bounds[1]:
        raise ValueError(f"the lower bound {bounds[0]:g} must be below the upper bound {bounds[1]:g}")
    return bounds


Axis = Annotated[Choice | Uniform | LogUniform | IntUniform, Field(union_mode="left_to_right")]


def values_of(axis: Choice | Uniform | LogUniform | IntUniform | tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    """The listed values of an axis, or the bounds of a range."""
    match axis:
        case Choice():
            return axis.choice
        case Uniform():
            return axis.uniform
        case LogUniform():
            return axis.log_uniform
        case IntUniform():
            return axis.int_uniform
    return axis
