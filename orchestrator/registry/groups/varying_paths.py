"""Paths in which recipes differ, and settings in which trials do: what tells them apart."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from orchestrator.registry.parameter_values import is_source_digest


def varying_paths(recipes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Paths whose values differ between recipes; a path that a recipe lacks counts as None.

    Digests of what data were taken from are left out: those of the examples tell more.

    >>> sorted(varying_paths([{"size": "tiny", "epochs": 3}, {"size": "mini", "epochs": 3.0}, {"epochs": 3}]))
    ['size']
    """
    paths = {path for recipe in recipes for path in recipe if not is_source_digest(path)}
    return {path for path in paths if len({_hashable(recipe.get(path)) for recipe in recipes}) > 1}


def varied_parameters(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The `params.…` columns in which rows differ, sorted, without seed and fold, which tell no recipes apart."""
    recipes = [{name: value for name, value in row.items() if name.startswith("params.")} for row in rows]
    return sorted(name for name in varying_paths(recipes) if name not in ("params.seed", "params.fold"))


def _hashable(value: Any) -> Hashable:
    """Value, or a list's values as a tuple; equal where the values are."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else str(value) if isinstance(value, dict) else value
