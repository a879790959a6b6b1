"""Paths in which recipes differ, and settings in which trials do: what tells them apart."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from typing import Any

from orchestrator.registry.parameter_values import is_source_digest


def varying_paths(recipes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Paths whose values differ between recipes; a path that a recipe lacks counts as None.

    >>> sorted(varying_paths([{"size": "tiny", "epochs": 3}, {"size": "mini", "epochs": 3.0}, {"epochs": 3}]))
    ['size']
    """
    pairs = chain.from_iterable(recipe.items() for recipe in recipes)
    return paths_with_several_values(Counter((path, hashable(value)) for path, value in pairs), len(recipes))


def paths_with_several_values(num_having: Mapping[tuple[str, Hashable], int], num_recipes: int) -> set[str]:
    """Paths whose values differ between recipes, by the number of recipes that have each path and value.

    Digests of what data were taken from are left out: those of the examples tell more.
    """
    values: dict[str, set[Hashable]] = defaultdict(set)
    num_lacking = dict.fromkeys((path for path, _ in num_having), num_recipes)
    for (path, value), number in num_having.items():
        values[path].add(value)
        num_lacking[path] -= number
    varying = {path for path, own in values.items() if len(own | {None} if num_lacking[path] else own) > 1}
    return {path for path in varying if not is_source_digest(path)}


def varied_parameters(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The `params.…` columns in which rows differ, sorted, without seed and fold, which tell no recipes apart."""
    recipes = [{name: value for name, value in row.items() if name.startswith("params.")} for row in rows]
    return sorted(name for name in varying_paths(recipes) if name not in ("params.seed", "params.fold"))


def hashable(value: Any) -> Hashable:
    """Value, or a list's values as a tuple; equal where the values are."""
    return tuple(map(hashable, value)) if isinstance(value, list) else str(value) if isinstance(value, dict) else value
