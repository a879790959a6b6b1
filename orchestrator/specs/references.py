"""`@stage` in a pipeline: which fields may name another stage's result, and putting its path in their place."""

from collections.abc import Mapping
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.specs.fields import Section, Spec

_MARK = "@"


def resolve_references(spec: Spec, outputs: Mapping[str, str]) -> Spec:
    """The spec with each `@name` replaced. Raises: SpecError when no earlier stage has that name."""
    resolved: Spec = _resolve(spec, outputs)
    return resolved


def references(spec: Spec) -> set[str]:
    """The names of the stages that a spec uses."""
    found: set[str] = set()
    _collect(spec, found)
    return found


def _resolve(value: Any, outputs: Mapping[str, str]) -> Any:
    if isinstance(value, Section):
        return value.model_copy(
            update={name: _resolve(getattr(value, name), outputs) for name in type(value).model_fields}
        )
    if isinstance(value, dict):
        return {key: _resolve(item, outputs) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_resolve(item, outputs) for item in value)
    if isinstance(value, str) and value.startswith(_MARK):
        name = value.removeprefix(_MARK)
        if name not in outputs:
            known = ", ".join(outputs) or "none"
            raise SpecError(f"{value} names no earlier stage; earlier stages: {known}")
        return outputs[name]
    return value


def _collect(value: Any, found: set[str]) -> None:
    if isinstance(value, Section):
        for name in type(value).model_fields:
            _collect(getattr(value, name), found)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, tuple):
        for item in value:
            _collect(item, found)
    elif isinstance(value, str) and value.startswith(_MARK):
        found.add(value.removeprefix(_MARK))
