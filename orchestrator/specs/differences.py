"""Differences between two states of plain values, field by field: of a spec, or of what a checkpoint was made from."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

_MAX_SHOWN = 60
_ABSENT = "nothing"


def differences(was: Any, now: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each field that differs, and both of its values as `was → now`.

    >>> dict(differences({"steps": 10, "model": {"size": "tiny"}}, {"steps": 10, "model": {"size": "base"}}))
    {('model', 'size'): 'tiny → base'}
    """
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in (*was, *(key for key in now if key not in was)):
            yield from differences(was.get(key), now.get(key), (*path, str(key)))
    elif _plain(was) != _plain(now):
        yield path, f"{_shown(was)} → {_shown(now)}"


def _plain(value: Any) -> Any:
    """The value as it comes back from JSON: tuples are lists."""
    return json.loads(json.dumps(value, default=str))


def _shown(value: Any) -> str:
    """Text of a value, short; of a digest its beginning."""
    if value is None:
        return _ABSENT
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    if len(text) == 64 and all(character in "0123456789abcdef" for character in text):
        return f"{text[:12]}…"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
