"""Paths in which recipes differ, and settings in which trials do: what tells them apart."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from typing import Any


def varying_paths(recipes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Paths whose values differ between recipes; a path that a recipe lacks counts as None.

    >>> sorted(varying_paths([{"size": "tiny", "epochs": 3}, {"size": "mini", "epochs": 3.0}, {"epochs": 3}]))
    ['size']
    """
    num_having = Counter(chain.from_iterable(recipes))
    values: set[tuple[str, Hashable]] = set()
    for recipe in recipes:
        try:
            values.update(recipe.items())
        except TypeError:  # a list among them
            values.update((path, _hashable(value)) for path, value in recipe.items())
    values |= {(path, None) for path, number in num_having.items() if number < len(recipes)}
    num_values = Counter(path for path, _ in values)
    return {path for path, number in num_values.items() if number > 1}


def varied_parameters(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The `params.…` columns in which rows differ, sorted, without the seed, which has a column of its own."""
    recipes = [{name: value for name, value in row.items() if name.startswith("params.")} for row in rows]
    return sorted(name for name in varying_paths(recipes) if name != "params.seed")


def _hashable(value: Any) -> Hashable:
    """Value, or a list's values as a tuple; equal where the values are."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else str(value) if isinstance(value, dict) else value
