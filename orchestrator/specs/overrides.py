"""Merging of values into a spec: what `extends`, overrides and the variants of a stage have in common.

Mappings are merged and anything else is replaced; an axis of `space` is replaced whole.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.specs.problems import dotted, problem_value, shown
from orchestrator.specs.yaml_text import KeyPath, Place, YamlDocument, parse_value

Overrides = Sequence[str] | Mapping[str, Any]


def parse_overrides(overrides: Overrides) -> list[tuple[str, Any, Place]]:
    """Split overrides into dotted keys and values, each with the place that messages name. Raises: SpecError."""
    if isinstance(overrides, Mapping):
        return [(key, value, Place(f"override {key}")) for key, value in overrides.items()]
    parsed = []
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise SpecError(f"override {text!r} is not KEY=VALUE, such as recipe.learning_rate=3e-5")
        parsed.append((key.strip(), parse_value(value, f"override {text}"), Place(f"override {text}")))
    return parsed


def override_words(overrides: Overrides) -> list[str]:
    """Return overrides as KEY=VALUE words, as a person would type them.

    >>> override_words({"trials": 4, "recipe.seed": None}), override_words(["trials=4"])
    (['trials=4', 'recipe.seed=null'], ['trials=4'])
    """
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in overrides.items()]


def apply_override(document: YamlDocument, key: str, value: Any, place: Place, below: KeyPath = ()) -> None:
    """Set the value of one dotted key below a mapping of the document; missing mappings on its way are made.

    Raises: SpecError.
    """
    path, target = below, problem_value(document.values, below)
    parts = key.split(".")
    for part in parts[:-1]:
        step = _step(target, part, dotted((*path, part)), place)
        path = (*path, step)
        if isinstance(target, dict) and target.get(step) is None:
            target[step] = {}
            document.places[path] = place
        target = target[step]
    last = _step(target, parts[-1], dotted((*below, key)), place)
    if isinstance(target, dict):
        merge(target, {str(last): value}, path)
    else:
        target[last] = value
    document.places[(*path, last)] = place


def merge(base: dict[str, Any], update: Mapping[str, Any], path: KeyPath) -> None:
    """Merge values into the mapping at a path; `null` removes a variant that is there."""
    whole, leaves_out = path[-1:] == ("space",), path[-1:] == ("variants",)
    for key, value in update.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict) and not whole:
            merge(base[key], value, (*path, key))
        elif value is None and key in base and leaves_out:
            del base[key]
        else:
            base[key] = value


def _step(target: Any, part: str, key: str, place: Place) -> str | int:
    if isinstance(target, dict) and part:
        return part
    if isinstance(target, list):
        if part.isdecimal() and int(part) < len(target):
            return int(part)
        raise SpecError(f"{place}: {key}: the list has entries 0 to {len(target) - 1}")
    if not part:
        raise SpecError(f"{place}: the key has an empty part; write it like recipe.learning_rate")
    raise SpecError(f"{place}: {key}: there is nothing below a value that is {shown(target)}")
