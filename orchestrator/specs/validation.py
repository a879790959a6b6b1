"""Validation of specs: pydantic's errors become messages with file and line, field, value, and what is allowed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import ValidationError

from orchestrator.base.errors import SpecError
from orchestrator.base.nearest import did_you_mean, nearest
from orchestrator.specs import SPEC_KINDS, spec_class
from orchestrator.specs.fields import Section, shortened
from orchestrator.specs.yaml_text import KeyPath, SourceLocation, YamlDocument

if TYPE_CHECKING:
    from orchestrator.specs.pipeline import AnySpec

_MAX_LISTED = 5
"""Problems of a spec, or paths of a field, that a message lists at most."""

_MUST_BE = {
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of fields",
    "model_attributes_type": "must be a mapping of fields",
}
"""Rules that pydantic tells in Python's words."""
_AXIS_FORMS = "a list of values, or one of choice: [...], uniform: [low, high], log_uniform: [...], int_uniform: [...]"


def validate_document(document: YamlDocument) -> "AnySpec":
    """The spec that a document describes. Raises: SpecError, naming file, line, field, value and what is allowed."""
    values, places = document.values, document.places
    kind = values.get("kind")
    if kind is None:
        raise SpecError(f"{place_of((), places)}: kind is missing; one of: {', '.join(SPEC_KINDS)}")
    if not isinstance(kind, str) or kind not in SPEC_KINDS:
        raise SpecError(f"{place_of(('kind',), places)}: kind is {shown(kind)}{did_you_mean(str(kind), SPEC_KINDS)}")
    cls = spec_class(kind)
    try:
        spec = cls.model_validate(values)
    except ValidationError as error:
        raise SpecError(describe(error, values, places, cls)) from None
    _refuse_booleans_as_numbers(values, spec.model_dump(), (), places)
    return spec


def _refuse_booleans_as_numbers(
    written: Any, read: Any, path: KeyPath, places: Mapping[KeyPath, SourceLocation]
) -> None:
    """pydantic reads `steps: true` as one step; nobody means that."""
    if isinstance(written, bool) and isinstance(read, int | float) and not isinstance(read, bool):
        raise SpecError(f"{place_of(path, places)}: {dotted(path)} is {str(written).lower()}; it must be a number")
    if isinstance(written, Mapping) and isinstance(read, Mapping):
        for key, value in written.items():
            _refuse_booleans_as_numbers(value, read.get(key), (*path, key), places)
    elif isinstance(written, list | tuple) and isinstance(read, list | tuple):
        for index, (item, other) in enumerate(zip(written, read, strict=False)):
            _refuse_booleans_as_numbers(item, other, (*path, index), places)


def describe(
    error: ValidationError, values: Mapping[str, Any], places: Mapping[KeyPath, SourceLocation], top: type[Section]
) -> str:
    """Describe problems, a line each, at most a handful."""
    lines: dict[KeyPath, str] = {}
    for problem in error.errors(include_url=False):
        path = _path_in(values, problem["loc"], missing=problem["type"] == "missing")
        sentence = _sentence(problem, path, values, top)
        named = sentence.split(maxsplit=1)[0].split(".") if problem["type"] == "value_error" else ()
        if "space" in path[:-1]:
            path = path[: path.index("space") + 2]
            if problem["type"] != "value_error":  # the members of the union complain one by one
                sentence = f"{shown(value_at(values, path))} is no axis; give {_AXIS_FORMS}"
        place = place_of((*path, *named), places)
        line = f"{place}: {dotted(path)} {sentence}" if path else f"{place}: {sentence}"
        if path not in lines or problem["type"] == "value_error":
            lines[path] = line
    listed = list(lines.values())
    if len(listed) > _MAX_LISTED:
        listed = [*listed[:_MAX_LISTED], f"… and {len(listed) - _MAX_LISTED} more problems"]
    return "\n".join(listed)


def place_of(path: KeyPath, places: Mapping[KeyPath, SourceLocation]) -> SourceLocation:
    """Location where a field is written, or else its nearest parent."""
    while path not in places and path:
        path = path[:-1]
    return places.get(path, SourceLocation("spec"))


def dotted(path: Sequence[str | int]) -> str:
    """Join the parts of a path with dots, as in `recipe.seed`."""
    return ".".join(str(part) for part in path)


def shown(value: object) -> str:
    """Text of a value for a message: one short line."""
    return shortened(repr(value) if isinstance(value, str) else str(value))


def value_at(values: Any, path: KeyPath) -> Any:
    """Value at a path of a spec's plain values; None for the last key where it is not written."""
    for part in path:
        values = values.get(part) if isinstance(values, Mapping) else values[part]
    return values


def _path_in(values: Any, loc: Sequence[str | int], *, missing: bool) -> KeyPath:
    """The part of pydantic's location that exists in what was written: it also names the members of unions."""
    path: list[str | int] = []
    for number, part in enumerate(loc):
        try:
            values = values[part]
        except (LookupError, TypeError):
            if not (missing and number == len(loc) - 1):
                continue
        path.append(part)
    return tuple(path)


def _sentence(problem: Any, path: KeyPath, values: Mapping[str, Any], top: type[Section]) -> str:
    kind, context, value = str(problem["type"]), dict(problem.get("ctx") or {}), problem["input"]
    if kind == "value_error":
        return str(context["error"])
    if kind == "missing":
        section = section_at(top, path[:-1], values)
        return f"is needed: {section.model_fields[str(path[-1])].description}" if section else "is needed"
    if kind == "extra_forbidden":
        section = section_at(top, path[:-1], values)
        fields, name = section.model_fields if section else {}, str(path[-1])
        inner = list(dict.fromkeys(_paths_to(name, top, path[:-1], values)))
        stages = values.get("stages")
        inner += [f"stages.{name}"] if isinstance(stages, Mapping) and name in stages else []
        hint = f"; did you mean {' or '.join(inner[:_MAX_LISTED])}?" if inner else did_you_mean(name, fields)
        return f"is no field of this spec{hint}"
    if kind == "union_tag_not_found":
        return "has no kind; begin it with a line such as `kind: sweep`"
    if kind == "union_tag_invalid":
        tag = context["tag"]
        return f"has an unknown kind: {tag!r}{did_you_mean(tag, _words(context['expected_tags']))}"
    remedy = ""
    if kind == "string_type" and isinstance(value, bool | int | float):
        remedy = f"; put it in quotes: '{value}'"
    if kind == "tuple_type" and isinstance(value, str | int | float):
        remedy = f": [{value}]"
    return f"is {shown(value)}; {rule_of(problem)}{remedy}"


def rule_of(problem: Any) -> str:
    """Clause that says what the value of one of pydantic's problems must be."""
    kind, context = str(problem["type"]), dict(problem.get("ctx") or {})
    if kind == "literal_error":
        allowed = _words(context["expected"])
        close = nearest(str(problem["input"]), allowed, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return f"allowed: {', '.join(allowed)}{hint}"
    if kind in _MUST_BE:
        return f"it {_MUST_BE[kind]}"
    message = re.sub(", (unable to|got a) .*", "", str(problem["msg"]).removeprefix("Value error, "))
    return re.sub("^(Input|Tuple|Dictionary) should", "it must", message)


def _words(expected: str) -> list[str]:
    return [word.strip("' ") for word in expected.replace(" or ", ", ").split(",")]


def section_at(top: type[Section], path: Sequence[str | int], values: Any) -> type[Section] | None:
    """The kind of section that stands at a path of a spec; the written `kind` decides between several."""
    section: type[Section] | None = top
    candidates: list[type[Section]] = [top]
    for part in path:
        values = value_at(values, (part,)) if isinstance(values, Mapping | list | tuple) else None
        if section is not None and part in section.model_fields:
            candidates = sections_in(section.model_fields[str(part)].annotation)
        kind = values.get("kind") if isinstance(values, Mapping) else None
        matching = [c for c in candidates if "kind" in c.model_fields and c.model_fields["kind"].default == kind]
        section = matching[0] if matching else candidates[0] if len(candidates) == 1 else None
    return section


def sections_in(annotation: Any) -> list[type[Section]]:
    """The section types that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [section for part in get_args(annotation) for section in sections_in(part)]


def _paths_to(name: str, top: type[Section], path: KeyPath, values: Any) -> Iterator[str]:
    """Paths of the fields of that name in the sections just below a path, and in a pipeline's stages with theirs.

    A variant's is that of its stage, where it is written.
    """
    section, here = section_at(top, path, values), value_at(values, path)
    for field, info in section.model_fields.items() if section else ():
        origin, written = get_origin(info.annotation), here.get(field)
        keys: list[KeyPath] = [()] if origin not in (dict, tuple) else []
        if origin is dict and isinstance(written, Mapping):
            keys = [(key,) for key in written]
        for key in keys:
            member = section_at(top, (*path, field, *key), values)
            if member is not None and name in member.model_fields:
                yield dotted([str(part).partition(".")[0] for part in (*path, field, *key, name)])
            if key and isinstance(written[key[0]], Mapping):
                yield from _paths_to(name, top, (*path, field, *key), values)
