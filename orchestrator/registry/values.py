"""A spec's values as the registry keeps them: dotted paths, typed, with a digest that leaves the seed out."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.registry.column_types import storable


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"recipe": {"seed": 0}}` as `{"recipe.seed": 0}`; lists of plain values stay whole.

    >>> flatten({"recipe": {"seed": 0}, "phases": [{"share": 1.0}], "tags": ["a", "b"]})
    {'recipe.seed': 0, 'phases.0.share': 1.0, 'tags': ['a', 'b']}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{path}.")
        elif _holds_sections(value):
            flat |= flatten({str(index): item for index, item in enumerate(value)}, f"{path}.")
        else:
            flat[path] = list(value) if isinstance(value, tuple) else value
    return flat


def _holds_sections(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value)


def parameter_rows(run_id: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each parameter, with its short name where that is its alone."""
    leaves = leaf_names(list(parameters))
    rows = []
    for path, value in parameters.items():
        kind, text, number = encode(value)
        rows.append(
            {"run_id": run_id, "path": path, "leaf": leaves[path], "kind": kind, "text": text, "number": number}
        )
    return rows


def leaf_names(paths: Sequence[str]) -> dict[str, str | None]:
    """Each path's last part, where it names one path only; a path without dots owns its name.

    >>> leaf_names(["seed", "recipe.seed", "recipe.size"])
    {'seed': 'seed', 'recipe.seed': None, 'recipe.size': 'size'}
    """
    whole = set(paths)
    count = Counter(path.rpartition(".")[2] for path in paths)
    names: dict[str, str | None] = {}
    for path in paths:
        leaf = path.rpartition(".")[2]
        names[path] = leaf if path == leaf or (count[leaf] == 1 and leaf not in whole) else None
    return names


def encode(value: Any) -> tuple[str, str, float | None]:
    """A value as (kind, text, number).

    >>> encode(5e-05), encode(True), encode("tiny")
    (('number', '5e-05', 5e-05), ('boolean', 'true', 1.0), ('text', 'tiny', None))
    """
    if value is None:
        return "null", "null", None
    if isinstance(value, bool):
        return "boolean", json.dumps(value), float(value)
    if isinstance(value, int | float):
        return "number", json.dumps(value), float(value)
    if isinstance(value, str):
        return "text", value, None
    return "json", json.dumps(value, default=str), None


def decode(kind: str, text: str) -> Any:
    """The value that `encode` was given."""
    return text if kind == "text" else json.loads(text)


def group_digest(parameters: Mapping[str, Any]) -> str:
    """16 hexadecimal digits that are equal for parameters that differ only in their seed."""
    return digest(
        {
            path: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
            for path, value in parameters.items()
            if path.rpartition(".")[2] not in ("seed", "seeds")
        }
    )


def digest(value: Any) -> str:
    """16 hexadecimal digits of SHA-256 over plain values as JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(storable(text).encode()).hexdigest()[:16]
