"""Checks that follow from a dataclass's annotations, so that a field's type and bounds are written down once.

    size: Annotated[int, Bounds(at_least=1)]       a whole number of at least 1
    rate: Annotated[float, Bounds(above=0)]        a number above 0
    kind: Literal["mlp", "gated"]                  one of the two
    use_bias: bool                                 true or false
    … | None                                       or None

Fields of other types are left to the class itself.
"""

from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from bert_core.errors import ConfigError


@dataclass(frozen=True)
class Bounds:
    """Marker for `Annotated`: the numbers that a field takes."""

    at_least: float | None = None
    above: float | None = None
    below: float | None = None

    def include(self, number: float) -> bool:
        """Whether a number lies within the bounds; NaN never does."""
        return (
            (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        """The bounds in words, as in "of at least 0 and below 1"."""
        words = {"of at least": self.at_least, "above": self.above, "below": self.below}
        return " and ".join(f"{word} {bound}" for word, bound in words.items() if bound is not None)


@dataclass(frozen=True)
class _Rule:
    """Rule for a field's values, read from its annotation: type, bounds, choices, whether None."""

    kind: Any
    bounds: Bounds | None
    choices: tuple[Any, ...]
    is_optional: bool

    def complaint(self, value: object) -> str | None:
        """The rest of a message that begins with the field's name; None where the value is allowed."""
        if value is None and self.is_optional:
            return None
        if self.choices:
            known = (*self.choices, None) if self.is_optional else self.choices
            return None if value in self.choices else f"{value!r} is not known; use one of {', '.join(map(str, known))}"
        if self.kind is bool:
            return None if isinstance(value, bool) else f"is {value!r}; it must be true or false"
        if self.kind not in (int, float):
            return None
        is_number = isinstance(value, int if self.kind is int else int | float) and not isinstance(value, bool)
        if is_number and (self.bounds is None or self.bounds.include(value)):  # type: ignore[arg-type]
            return None
        number = "a whole number" if self.kind is int else "a number"
        return f"is {value!r}; it must be {' '.join([number, str(self.bounds or '')]).strip()}"


def check_fields(instance: Any) -> None:
    """Compare the values of a dataclass's fields with their annotations.

    Raises: ConfigError, naming the first field whose value is not allowed, the value and what it may be.
    """
    for name, rule in _rules(instance.__class__).items():
        complaint = rule.complaint(getattr(instance, name))
        if complaint is not None:
            raise ConfigError(f"{name} {complaint}")


@cache
def _rules(cls: type) -> dict[str, _Rule]:
    return {name: _take_apart(annotation) for name, annotation in get_type_hints(cls, include_extras=True).items()}


def _take_apart(annotation: Any) -> _Rule:
    is_optional = get_origin(annotation) in (Union, UnionType)
    if is_optional:
        (annotation,) = (part for part in get_args(annotation) if part is not NoneType)
    bounds = None
    if get_origin(annotation) is Annotated:
        annotation, bounds = get_args(annotation)
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    return _Rule(annotation, bounds, choices, is_optional)
