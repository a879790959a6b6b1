"""Keys of groups: a digest of all that a group's runs have in common but the code, and after a dot that of the code."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

_CODE_DIGITS = 8
LABEL_DIGITS = 8
"""Digits of a group's digest that lists show, without those of the code."""


def group_key(recipe_digest: str, code_version: str | None) -> str:
    """Key of the group of runs with this digest of all but the code, and of this code."""
    if code_version is None:
        return recipe_digest
    return f"{recipe_digest}.{code_digest(code_version)}"


@lru_cache
def code_digest(code_version: str) -> str:
    """Digest of a version of the code, as the keys of groups have it."""
    return hashlib.sha256(code_version.encode()).hexdigest()[:_CODE_DIGITS]


def group_code(key: str) -> str:
    """Digest of the code in a group's key; empty where it is not known.

    >>> group_code("3f2a77c0b1d2e3f4.1a2b3c4d"), group_code("3f2a77c0b1d2e3f4")
    ('1a2b3c4d', '')
    """
    return key.partition(".")[2]


def group_label(key: str, num_digits: int = LABEL_DIGITS) -> str:
    """Short form of a group's key.

    >>> group_label("3f2a77c0b1d2e3f4.1a2b3c4d"), group_label("3f2a77c0b1d2e3f4")
    ('3f2a77c0.1a2b3c4d', '3f2a77c0')
    """
    recipe, dot, code = key.partition(".")
    return f"{recipe[:num_digits]}{dot}{code}"


def distinct_labels(keys: Sequence[str]) -> list[str]:
    """Short forms of groups' keys, all with as many more digits as tell the keys apart.

    >>> distinct_labels(["3f2a77c0b1d2e3f4", "3f2a77c0b2d2e3f4"])
    ['3f2a77c0b1', '3f2a77c0b2']
    """
    lengths = range(LABEL_DIGITS, max(LABEL_DIGITS, *map(len, keys)) + 1)
    forms = ([group_label(key, num_digits) for key in keys] for num_digits in lengths)
    return next((labels for labels in forms if len(set(labels)) == len(keys)), list(keys))
