"""The tree of a query: comparisons, joined and negated; its texts, and errors about one place in them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from orchestrator.errors import InputError

METRIC_SPLITS = ("validation", "test", "train")
FUNCTIONS = ("best", "worst", "min", "max", "first", "last", "at")
"""Functions of a measurement; `at` takes a step as well."""
AGGREGATES = ("count", "n", "mean", "sd", "min", "max", "median", "sum", "best", "worst")
"""`count` is the number of runs, `n` of those whose value counts, `best` the highest one, of a loss the lowest."""
UNITS_S: Mapping[str, float] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
"""Seconds of the units of an age."""
_OF_PARTS = ("space.", "stages.")
"""Beginnings of paths whose values the trials of a sweep, or the stages of a pipeline, have as their own."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w./-]*")
_SHOWN_AROUND = 60
"""Characters of a long line that a message shows before and after the place it is about."""


def quoted(text: str) -> str:
    """Write a text as a query has it: in single quotes, those in it doubled.

    >>> quoted("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def field_text(name: str) -> str:
    """Write the name of a field as a query has it: with other signs than a plain name's, in quotes after the dot.

    >>> field_text("metrics.test.f1"), field_text("metrics.f1_C++"), field_text("metrics.test.f1_C++")
    ('metrics.test.f1', 'metrics."f1_C++"', 'metrics.test."f1_C++"')
    """
    area, dot, rest = name.partition(".")
    if not dot or (rest and _PLAIN_NAME.fullmatch(name)):
        return name
    split, _, last = rest.partition(".")
    if area == "metrics" and split in METRIC_SPLITS and last:
        area, rest = f"{area}.{split}", last
    return area + '."' + rest.replace('"', '""') + '"'


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Short name of each path: its last part, or the whole path where several end in that part.

    >>> short_names(["seed", "recipe.seed", "recipe.size", "space.size"])
    {'seed': 'seed', 'recipe.seed': 'recipe.seed', 'recipe.size': 'size', 'space.size': 'space.size'}
    """
    last = {path: path if path.startswith(_OF_PARTS) else path.rpartition(".")[2] for path in paths}
    count = Counter(last.values())
    return {path: name if count[name] == 1 else path for path, name in last.items()}


def paths_called(name: str, paths: Iterable[str]) -> list[str]:
    """Paths that a name without dots can mean: those that end in it.

    >>> paths_called("size", ["model.size", "recipe.size", "space.size"]), paths_called("size", ["space.size"])
    (['model.size', 'recipe.size'], ['space.size'])
    """
    ending = [path for path in paths if path == name or path.endswith(f".{name}")]
    return [path for path in ending if not path.startswith(_OF_PARTS)] or ending


@dataclass(frozen=True)
class Age:
    """Length of time as a query writes it, `7d`. Compared with a time it stands for the moment so long ago."""

    number: float
    unit: str
    """One of `UNITS_S`."""

    @property
    def seconds(self) -> float:
        return self.number * UNITS_S[self.unit]

    def __str__(self) -> str:
        return f"{self.number:g}{self.unit}"


Value = str | int | float | bool | None | Age
"""Value in a query: a whole number is an int, `nan` and `inf` are floats."""


@dataclass(frozen=True)
class FieldName:
    """Name of a field: words with dots, the last of which may have been in quotes."""

    name: str
    is_quoted: bool = False
    """Whether a part was in quotes, so that the name is taken exactly."""
    place: int = field(default=0, compare=False)
    """Position of the name in the text."""

    def __str__(self) -> str:
        return field_text(self.name) if self.is_quoted else self.name


@dataclass(frozen=True)
class HistoryValue:
    """One value of a measurement's history: `best(metrics.f1)`, `at(metrics.loss, 1000)`."""

    function: str
    metric: FieldName
    step: int | float | None = None
    place: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.function}({self.metric}" + (")" if self.step is None else f", {self.step})")


Operand = FieldName | HistoryValue
"""Part of a query that has a value of its own in each run."""


@dataclass(frozen=True)
class Comparison:
    """Comparison `operand operator value`. A chain such as `0.7 < f1 < 0.9` is two of them."""

    operand: Operand
    operator: str
    """One of = != < <= > >= in like between"""
    values: tuple[Value | Operand, ...]


@dataclass(frozen=True)
class Combination:
    """Conditions joined by `and` or by `or`; after `not` a single one."""

    word: str
    parts: tuple["Condition", ...]


Condition = Comparison | Combination


def comparisons(condition: Condition) -> Iterator[tuple[Comparison, int]]:
    """Every comparison of a query, with its depth; without recursion, since a tree may be too deep for it."""
    pending = [(condition, 1)]
    while pending:
        part, depth = pending.pop()
        if isinstance(part, Comparison):
            yield part, depth
        else:
            pending += [(child, depth + 1) for child in reversed(part.parts)]


class MisplacedError(Exception):
    """Error about one place in the text of a query."""

    def __init__(self, place: int, message: str) -> None:
        super().__init__(message)
        self.place = place


@contextmanager
def errors_in(text: str) -> Iterator[None]:
    """Raise a MisplacedError as an InputError: its message, the line of the text around it, and a caret under it."""
    try:
        yield
    except MisplacedError as error:
        before, after = text[: error.place].rpartition("\n")[2], text[error.place :].partition("\n")[0]
        if len(before) + len(after) > 2 * _SHOWN_AROUND:
            before = before if len(before) <= _SHOWN_AROUND else "…" + before[-_SHOWN_AROUND:]
            after = after if len(after) <= _SHOWN_AROUND else after[:_SHOWN_AROUND] + "…"
        visible = "".join(letter if letter.isprintable() else " " for letter in before + after)
        raise InputError(f"{error}\n  {visible}\n  {' ' * len(before)}^") from None
