"""Nearest known names of a mistyped one, for messages."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


def nearest(name: str, known: Iterable[str], num: int = 4) -> list[str]:
    """Known names that a name may stand for, the likeliest first.

    A name's last part (`f1` for `metrics.f1`), its initials (`lr` for `learning_rate`), its beginning or end, and a
    slip of the pen all count.

    >>> nearest("params.lr", ["params.head", "params.recipe.learning_rate"])
    ['params.recipe.learning_rate']
    >>> nearest("Swep", ["sweep", "probe"])
    ['sweep']
    """
    names = list(known)
    area, _, rest = name.rpartition(".")
    area, wanted = area.partition(".")[0], rest.lower()
    there = [other for other in names if not area or other.startswith(area)] or names
    meant = [other for other in there if wanted in (_last(other), _initials(_last(other)))]
    if len(wanted) > 2:
        meant += [other for other in there if _last(other).startswith(wanted) or _last(other).endswith(f"_{wanted}")]
    if meant:
        return list(dict.fromkeys(sorted(meant, key=lambda other: other.count("."))))[:num]
    whole = {other.lower(): other for other in reversed(names)}
    by_last = {_last(other): other for other in reversed(there)}
    close = [whole[other] for other in get_close_matches(name.lower(), list(whole), n=num)]
    close += [by_last[last] for last in get_close_matches(wanted, list(by_last), n=num, cutoff=0.7)]
    return list(dict.fromkeys(close))[:num]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Ending of a message about an unknown name: the nearest known one, else a list of all."""
    names = list(known)
    close = nearest(name, names, 1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(names)}"


def no_file(path: str) -> str:
    """Message about a file that is not there, with the nearest name in its folder."""
    return f"there is no file {path}{similar_file(Path(path)) or '; check the path'}"


def similar_file(path: Path, pattern: str = "*") -> str:
    """Ending of a message about a file that is not there: the nearest one, or what is there; empty for neither."""
    if path.is_dir():
        return ": it is a folder"
    if not path.parent.is_dir():
        return f": there is no folder {path.parent}" if ":/" not in str(path) else ""  # a URI's
    names = sorted(file.name for file in path.parent.glob(pattern) if not file.name.startswith("."))
    stems = nearest(path.name.partition(".")[0], dict.fromkeys(name.partition(".")[0] for name in names))
    close = [name for stem in stems for name in names if name.partition(".")[0] == stem]
    endings = nearest(path.suffix, dict.fromkeys(Path(name).suffix for name in close))
    close.sort(key=lambda name: (not name.startswith(path.name), Path(name).suffix not in [path.suffix, *endings[:1]]))
    return f"; did you mean {path.parent / close[0]}?" if close else ""


def _last(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _initials(name: str) -> str:
    return "".join(word[0] for word in name.split("_") if word)
