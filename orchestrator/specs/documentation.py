"""Documentation of the fields of a spec: the rows of `orchestrator schema`."""

import types
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from orchestrator.specs.fields import Section, role_of
from orchestrator.specs.validation import sections_in

_PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false"}


@dataclass(frozen=True)
class FieldDoc:
    """One field, as a person looks it up."""

    field: str
    """Dotted path of the field; `[]` stands for each entry of a list."""
    type: str
    unit: str | None
    default: str
    role: str
    """`identity`: the field changes the result; `execution`: it does not."""
    about: str


def document_fields(cls: type[Section], prefix: str = "") -> Iterator[FieldDoc]:
    """Every field of a spec, sections followed by theirs; the stages of a pipeline are specs of their own."""
    for name, info in cls.model_fields.items():
        extra = info.json_schema_extra
        assert isinstance(extra, dict)
        unit = extra.get("unit")
        yield FieldDoc(
            prefix + name,
            describe_type(info.annotation) + _bounds(info),
            str(unit) if unit else None,
            _default(info),
            role_of(info),
            info.description or "",
        )
        inner = sections_in(info.annotation)
        if len(inner) == 1:
            is_list = get_origin(info.annotation) is tuple
            yield from document_fields(inner[0], f"{prefix}{name}[]." if is_list else f"{prefix}{name}.")


def describe_type(annotation: Any) -> str:
    """A type in words: `list of text`, `a | b | c`; that a field can be left out is its default's to say."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "section" if "kind" not in annotation.model_fields else str(annotation.model_fields["kind"].default)
    if is_dataclass(annotation):  # an axis of a search space
        fields = (f"{name}: {describe_type(hint)}" for name, hint in get_type_hints(annotation).items())
        return f"{{{', '.join(fields)}}}"
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(str(part) for part in parts)
    if origin is tuple:
        entries = parts[:1] if parts[-1] is Ellipsis else parts
        kinds = list(dict.fromkeys(describe_type(part) for part in entries))
        return f"list of {kinds[0]}" if parts[-1] is Ellipsis else f"{len(parts)} × {' / '.join(kinds)}"
    if origin is dict:
        return f"{describe_type(parts[0])} → {describe_type(parts[1])}"
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_type(part) for part in parts if part is not type(None)))
    return describe_type(parts[0])  # Annotated


def _bounds(info: FieldInfo) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    found = [
        f"{sign} {getattr(rule, name):g}" if isinstance(getattr(rule, name), float) else f"{sign} {getattr(rule, name)}"
        for rule in info.metadata
        for name, sign in signs.items()
        if getattr(rule, name, None) is not None
    ]
    return f", {', '.join(found)}" if found else ""


def _default(info: FieldInfo) -> str:
    value = info.default
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "left out"
    if isinstance(value, Section) or (isinstance(value, tuple) and any(isinstance(item, Section) for item in value)):
        return "see below"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(str(item) for item in value)}]"
    return '""' if value == "" else str(value)
