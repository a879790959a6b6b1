"""The query language: from text to a tree of comparisons, joined and negated, or an error with a caret under the place.

The grammar is in query_language.lark; `orchestrator help queries` tells what it means. Its parser is loaded with the
first query, which takes longer than most lists do.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.base.errors import InputError

if TYPE_CHECKING:
    from lark import Lark, Token

METRIC_SPLITS = ("validation", "test", "train")
FUNCTIONS = ("best", "worst", "min", "max", "first", "last", "at")
"""Functions of a measurement; `at` takes a step as well."""
AGGREGATES = ("count", "n", "mean", "sd", "min", "max", "median", "sum", "best", "worst")
"""`count` is the number of runs, `n` of those whose value counts, `best` the highest one, of a loss the lowest."""
UNITS_S: Mapping[str, float] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
"""Seconds of the units of an age."""
_MOST_DAYS = 36_500
"""Longest age: a calendar has no day that is much further back."""
MAX_CHARACTERS, MAX_COMPARISONS, MAX_DEPTH = 10_000, 200, 50
_OF_PARTS = ("space.", "stages.")
"""Beginnings of paths whose values the trials of a sweep, or the stages of a pipeline, have as their own."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w./-]*")
_SHOWN_AROUND = 60
"""Characters of a long line that a message shows before and after the place it is about."""
_OTHER_QUOTES = frozenset("“”„‟‘’‚‛«»‹›`´")
_NAME_AT_END = re.compile(r"\b(metrics|params|tags)\.[\w./-]*\s*$")
_WORD = re.compile(r"[\w.:%@+/-]{1,40}|.?", re.DOTALL)
_WHOLE = re.compile(r"[+-]?\d{1,4000}")
"""A whole number; longer ones are beyond Python's own limit, and infinite for every column."""
_SPELLINGS = {"==": "=", "<>": "!="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LITERALS: dict[str, Callable[[Any], Any]] = {
    "NUMBER": lambda token: int(token) if _WHOLE.fullmatch(token) else float(token),
    "TEXT": lambda token: _unquoted(token),
    "AGE": lambda token: Age(float(token[:-1]), token[-1]),
    "DATE": str,
    "TRUE": lambda token: True,
    "FALSE": lambda token: False,
    "NULL": lambda token: None,
    "NAN": lambda token: math.nan,
    "INF": lambda token: -math.inf if token[0] == "-" else math.inf,
}
"""Values of literals, by their terminal."""
_IN_WORDS = {
    **{"FIELD": "a field (metrics.f1, params.recipe.size, task, …)", "NUMBER": "a number", "TEXT": "text in quotes"},
    **{"DATE": "a date", "AGE": "an age (7d)", "OPERATOR": "a comparison (= != < <= > >=)", "NOT": "not", "IN": "in"},
    **{"LIKE": "like", "BETWEEN": "between", "_IS": "is", "NULL": "null", "LPAR": "(", "COMMA": "a comma", "RPAR": ")"},
    **{"_AND": "and", "_OR": "or", "$END": "the end"},
}
"""Words for what may stand in a place; of what hardly anybody means nothing is said."""


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


def metric_name(series: str) -> str:
    """Name of a measurement in queries and columns; the validation split is left out of it."""
    return series.removeprefix(f"{METRIC_SPLITS[0]}.")


def series_order(series: str) -> tuple[int, str]:
    """Sort key of a measurement's series: by split, then by name."""
    split, _, name = series.partition(".")
    return METRIC_SPLITS.index(split), name


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


class WrongValueError(ValueError):
    """Error for a value or a comparison that does not fit a field; the message says what does."""


@dataclass(frozen=True)
class Age:
    """Length of time as a query writes it, `7d`. Compared with a time it stands for the moment so long ago."""

    number: float
    unit: str
    """One of `UNITS_S`."""

    @property
    def seconds(self) -> float:
        """Length in seconds. Raises: WrongValueError for an age that no calendar has."""
        seconds = self.number * UNITS_S[self.unit]
        if seconds > _MOST_DAYS * UNITS_S["d"]:
            raise WrongValueError(f"the longest age is {_MOST_DAYS}d")
        return seconds

    def __str__(self) -> str:
        return f"{self.number:g}{self.unit}"


Value = str | int | float | bool | None | Age
"""Value in a query: a whole number is an int, `nan` and `inf` are floats."""


@dataclass(frozen=True)
class Operand:
    """Part of a query that has a value of its own in each run: a field, or one value of a measurement's history, such
    as `best(metrics.f1)` and `at(metrics.loss, 1000)`.
    """

    name: str
    """Name of the field: words with dots, the last of which may have been in quotes."""
    function: str = ""
    step: int | float | None = None
    is_quoted: bool = False
    """Whether a part of the name was in quotes, so that it is taken exactly."""
    place: int = field(default=0, compare=False)
    """Position of the name in the text."""
    start: int = field(default=0, compare=False)
    """Position of the whole."""

    def __str__(self) -> str:
        name = field_text(self.name) if self.is_quoted else self.name
        step = "" if self.step is None else f", {self.step}"
        return f"{self.function}({name}{step})" if self.function else name


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
            before, after = before[-_SHOWN_AROUND:], after[:_SHOWN_AROUND]
        visible = "".join(letter if letter.isprintable() else " " for letter in before + after)
        raise InputError(f"{error}\n  {visible}\n  {' ' * len(before)}^") from None


def parse_filter(text: str) -> Condition:
    """Parse a query into its tree. Raises: InputError with a caret under the wrong place."""
    condition: Condition = _parse(text, "start")
    sizes = [(len(one.values), depth) for one, depth in comparisons(condition)]
    if sum(count for count, _ in sizes) > MAX_COMPARISONS or max(depth for _, depth in sizes) > MAX_DEPTH:
        raise InputError(f"The query is too long; at most {MAX_COMPARISONS} comparisons and {MAX_DEPTH} nested parts.")
    return condition


def parse_operand(text: str) -> Operand:
    """Parse a field, or a function of one: `best(metrics.f1)`. Raises: InputError with a caret."""
    with errors_in(text):
        return _operand(_parse(text, "operand"))


def _parse(text: str, start: str) -> Any:
    from lark.exceptions import UnexpectedInput

    if len(text) > MAX_CHARACTERS:
        raise InputError(f"The query is too long; at most {MAX_CHARACTERS} characters.")
    with errors_in(text):
        try:
            return _grammar().parse(text, start=start)
        except UnexpectedInput as error:
            raise _explained(error.pos_in_stream or 0, getattr(error, "token", None), text, start) from None


@lru_cache
def _grammar() -> "Lark":
    """The parser. It builds the tree while it reads, which needs no recursion however deep the text is nested."""
    from lark import Lark

    return Lark(
        Path(__file__).with_name("query_language.lark").read_text(encoding="utf-8"),
        parser="lalr",
        start=["start", "operand"],
        maybe_placeholders=True,
        transformer=_Tree(),
        lexer_callbacks={name: partial(_with_value, read) for name, read in _LITERALS.items()},
    )


def _with_value(read: Callable[["Token"], Value], token: "Token") -> "Token":
    token.value = read(token)
    return token


class _Tree:
    """Builder of the tree, from the leaves up; its methods are named like the rules of the grammar and get their parts.

    A side of a comparison is an operand, or the token of a literal with its `value`.
    """

    def any(self, parts: list[Condition]) -> Condition:
        return Combination("or", tuple(parts))

    def all(self, parts: list[Condition]) -> Condition:
        return Combination("and", tuple(parts))

    def negation(self, parts: list[Any]) -> Condition:
        return Combination("not", (parts[1],))

    def truth(self, parts: list[Any]) -> Condition:
        return Comparison(_operand(parts[0]), "=", (True,))

    def chain(self, parts: list[Any]) -> Condition:
        sides, operators = parts[::2], [_SPELLINGS.get(operator, str(operator)) for operator in parts[1::2]]
        links = tuple(map(_compared, sides, operators, sides[1:]))
        return links[0] if len(links) == 1 else Combination("and", links)

    def tested(self, parts: list[Any]) -> Condition:
        side, negated, word, *values = parts
        made = Comparison(_operand(side), word.lower(), tuple(map(_value, values)))
        return made if negated is None else Combination("not", (made,))

    def is_so(self, parts: list[Any]) -> Condition:
        side, negated, value = parts
        return Comparison(_operand(side), "=" if negated is None else "!=", (value.value,))

    def field(self, parts: list[Any]) -> Operand:
        """The name, of which the part after the last dot may stand in quotes: `metrics."f1_C++"`."""
        (token,) = parts
        area, quote, rest = token.partition("." + token[-1]) if token[-1] in "'\"" else (str(token), "", "")
        name = f"{area}.{_unquoted(quote[1] + rest)}" if quote else area
        return Operand(name, is_quoted=bool(quote), place=token.start_pos, start=token.start_pos)

    def history(self, parts: list[Any]) -> Operand:
        function, metric, step = parts
        number = None if step is None else step.value
        return replace(self.field([metric]), function=function.lower(), step=number, start=function.start_pos)


def _compared(left: Any, operator: str, right: Any) -> Comparison:
    """Comparison of two sides, its field on the left."""
    if isinstance(left, Operand):
        return Comparison(left, operator, (_value(right),))
    return Comparison(_operand(right), _MIRRORED.get(operator, operator), (left.value,))


def _value(side: Any) -> Value | Operand:
    return side if isinstance(side, Operand) else side.value


def _operand(side: Any) -> Operand:
    if not isinstance(side, Operand):
        raise MisplacedError(side.start_pos, "There should be a field here, such as metrics.f1 or task:")
    return side


def _unquoted(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0])


def _explained(place: int, token: "Token | None", text: str, start: str) -> MisplacedError:
    """The error at a place, or at a token that the grammar does not expect, with what may stand there."""
    ends = token is not None and token.type == "$END"
    place, remedy = len(text.rstrip()) if ends else place, ""
    word = _WORD.match(text, place)[0]  # type: ignore[index]
    if word in _OTHER_QUOTES:
        return MisplacedError(place, "Text stands in straight quotes, ' or \":")
    if token is None and word in "'\"":
        return MisplacedError(place, "The quote that opens here is not closed:")
    before = _grammar().parse_interactive(text[:place], start=start)  # the parser has gone on since then
    before.exhaust_lexer()
    accepted = before.accepts()  # type: ignore[no-untyped-call]
    if _NAME_AT_END.search(text[:place]):
        remedy = '; a name with other signs or blanks stands in quotes, metrics."f1_C++"'
    elif "TEXT" in accepted and word[:1].isalnum():
        remedy = f"; with quotes it is text: '{word}'"
    expected = ", ".join(said for terminal, said in _IN_WORDS.items() if terminal in accepted)
    message = "The query ends too early" if ends else f"The query goes wrong at {word!r}"
    return MisplacedError(place, f"{message}; expected: {expected}{remedy}:")
