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
        """Length in seconds."""
        return self.number * UNITS_S[self.unit]

    def __str__(self) -> str:
        return f"{self.number:g}{self.unit}"


Value = str | int | float | bool | None | Age
"""Value in a query: a whole number is an int, `nan` and `inf` are floats."""


@dataclass(frozen=True)
class FieldName:
    """Name of a field: plain words with dots, and after the last dot perhaps one in quotes, which is taken exactly."""

    name: str
    in_quotes: str | None = None
    place: int = field(default=0, compare=False)
    """Position of the name in the text."""

    def __str__(self) -> str:
        return self.name if self.in_quotes is None else self.name + '."' + self.in_quotes.replace('"', '""') + '"'


@dataclass(frozen=True)
class HistoryValue:
    """One value of a measurement's history: `best(metrics.f1)`, `at(metrics.loss, 1000)`."""

    function: str
    metric: FieldName
    step: int | float | None = None
    """Second argument of the function; None where there is none."""
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
class Not:
    """Negation of a condition."""

    part: "Condition"


@dataclass(frozen=True)
class Combination:
    """Two or more conditions joined by `and` or by `or`."""

    word: str
    parts: tuple["Condition", ...]


Condition = Comparison | Not | Combination


def comparisons(condition: Condition) -> Iterator[Comparison]:
    """Every comparison of a query, whether negated or not."""
    if isinstance(condition, Comparison):
        yield condition
    else:
        for part in condition.parts if isinstance(condition, Combination) else (condition.part,):
            yield from comparisons(part)


class MisplacedError(Exception):
    """Error about one place in the text of a query."""

    def __init__(self, place: int, message: str) -> None:
        super().__init__(message)
        self.place = place


@contextmanager
def errors_in(text: str) -> Iterator[None]:
    """Raise InputError with a caret, as `error_at` makes it, for a MisplacedError."""
    try:
        yield
    except MisplacedError as error:
        raise error_at(text, error.place, str(error)) from None


def error_at(text: str, place: int, message: str) -> InputError:
    """Make an error about one place in the text: the message, the line, and a caret under the place.

    Of a long line the part around the place is shown; characters that a terminal does not show are blank.
    """
    start = text.rfind("\n", 0, place) + 1
    line, place = text[start:].split("\n", 1)[0], place - start
    if len(line) > 2 * _SHOWN_AROUND:
        begin = max(0, place - _SHOWN_AROUND)
        shown = line[begin : place + _SHOWN_AROUND]
        before = "…" if begin else ""
        after = "…" if place + _SHOWN_AROUND < len(line) else ""
        line, place = before + shown + after, place - begin + len(before)
    visible = "".join(letter if letter.isprintable() else " " for letter in line)
    return InputError(f"{message}\n  {visible}\n  {' ' * place}^")


def shown_word(text: str, place: int) -> str:
    """The word that stands at a place in the text, for a message; at least one character, at most 40."""
    found = re.compile(r"[\w.:%@+/-]{1,40}").match(text, place)
    return found[0] if found else text[place : place + 1]
