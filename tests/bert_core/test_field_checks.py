"""Checks that follow from a dataclass's annotations. Run alone: pytest tests/bert_core/test_field_checks.py"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

import pytest

from bert_core.config_fields import ConfigFields
from bert_core.errors import ConfigError
from bert_core.field_checks import Bounds, check_fields


@dataclass(frozen=True)
class Example:
    """One field of each kind."""

    count: Annotated[int, Bounds(at_least=1)] = 1
    offset: int | None = None
    rate: Annotated[float, Bounds(at_least=0, below=1)] | None = 0
    scale: Annotated[float, Bounds(above=0)] = 1.0
    kind: Literal["mlp", "gated"] | None = "mlp"
    switch: bool = False
    names: Mapping[int, str] = field(default_factory=dict)


@pytest.mark.parametrize(
    "changes", [{}, {"offset": -3, "rate": None, "kind": None}, {"rate": 0.5, "scale": 3, "switch": True, "names": 3}]
)
def test_allowed_values_pass(changes: dict[str, Any]) -> None:
    example = Example(**changes)
    check_fields(example)
    assert {name: getattr(example, name) for name in changes} == changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "count is 0; it must be a whole number of at least 1"),
        ({"count": 1.0}, "count is 1.0; it must be a whole number of at least 1"),
        ({"count": True}, "count is True; it must be a whole number of at least 1"),
        ({"count": None}, "count is None; it must be a whole number of at least 1"),
        ({"offset": "a"}, "offset is 'a'; it must be a whole number"),
        ({"rate": 1}, "rate is 1; it must be a number of at least 0 and below 1"),
        ({"rate": float("nan")}, "rate is nan; it must be a number of at least 0 and below 1"),
        ({"scale": 0.0}, "scale is 0.0; it must be a number above 0"),
        ({"kind": "wide"}, "kind 'wide' is not known; use one of mlp, gated, None"),
        ({"switch": 1}, "switch is 1; it must be true or false"),
    ],
)
def test_a_wrong_value_is_named_with_its_field_and_what_it_may_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_fields(Example(**changes))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "name", [item.name for item in fields(ConfigFields) if item.name not in ("id2label", "model_type")]
)
def test_every_field_of_a_model_refuses_what_is_none_of_its_kind(name: str) -> None:
    """A list fits no field but the names of classes: whatever is added to the configuration is checked."""
    with pytest.raises(ConfigError, match=name):
        ConfigFields(**{name: ["no"]})
