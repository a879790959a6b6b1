"""The query language: from text to a tree of comparisons, joined and negated, or an error with a caret under the place.

`orchestrator help queries` tells what it means. Keywords may be in large letters.

    any         all [or all …]
    all         one [and one …]
    one         not one, ( any ), or a comparison:
                side < side [< side …], side [not] in (side, …), side [not] like TEXT, side [not] between side and side,
                side is [not] null, or a side alone, which is true
    side        FIELD, FUNCTION(FIELD), FUNCTION(FIELD, NUMBER), or a literal, as a key of `_LITERALS`
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from orchestrator.errors import InputError

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
_MAX_OPEN = 100
"""Parentheses and `not` that are open at once: the parser calls itself for each."""
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
_LITERALS: dict[str, Callable[[str], Any]] = {
    "number": lambda text: int(text) if _WHOLE.fullmatch(text) else float(text),
    "text": lambda text: _unquoted(text),
    "age": lambda text: Age(float(text[:-1]), text[-1]),
    "date": str,
    "true": lambda text: True,
    "false": lambda text: False,
    "null": lambda text: None,
    "nan": lambda text: math.nan,
    "inf": lambda text: -math.inf if text[0] == "-" else math.inf,
}
"""Values of literals, by the kind of their token."""
_KEYWORDS = frozenset(("or", "and", "not", "in", "is", "like", "between", "true", "false", "null", "nan"))
_TOKEN = re.compile(
    r"""[ \t\f\r\n]*(?:
      (?P<operator> [<>!=]= | <> | [<>=])
    | (?P<date> [0-9]{4}-[0-9]{2}-[0-9]{2}
        (?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)? (?![\w.:/-]))
    | (?P<age> [0-9]+(?:\.[0-9]+)?[smhdw] (?![\w./-]))
    | (?P<number> [+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? (?![\w.]))
    | (?P<inf> (?i:[+-]?inf(?:inity)?) (?![\w./-]))
    | (?P<text> '(?:[^']|'')*' | "(?:[^"]|"")*")
    | (?P<sign> [(),])
    | (?P<word> [A-Za-z_][\w./-]* (?:(?<=\.)(?:'(?:[^']|'')*'|"(?:[^"]|"")*"))?)
    )""",
    re.VERBOSE,
)
"""Words are keywords, functions and fields, of which the part after the last dot may stand in quotes."""
_SIDE = "a field (metrics.f1, params.recipe.size, task, …), a number, text in quotes, a date, an age (7d), null"
_TESTS = "a comparison (= != < <= > >=), not, in, like, between, is"
_TOO_LONG = f"The query is too long; at most {MAX_COMPARISONS} comparisons and {MAX_DEPTH} nested parts."


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


def comparisons(condition: Condition, depth: int = 1) -> Iterator[tuple[Comparison, int]]:
    """Every comparison of a query, with its depth."""
    if isinstance(condition, Comparison):
        yield condition, depth
    else:
        for part in condition.parts:
            yield from comparisons(part, depth + 1)


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


def parse_filter(text: str) -> Condition:
    """Parse a query into its tree. Raises: InputError with a caret under the wrong place."""
    with errors_in(text):
        parser = _Parser(text)
        condition = parser.any()
        parser.expect("and, or, the end", "end")
    sizes = [(len(one.values), depth) for one, depth in comparisons(condition)]
    if sum(count for count, _ in sizes) > MAX_COMPARISONS or max(depth for _, depth in sizes) > MAX_DEPTH:
        raise InputError(_TOO_LONG)
    return condition


def parse_operand(text: str) -> Operand:
    """Parse a field, or a function of one: `best(metrics.f1)`. Raises: InputError with a caret."""
    with errors_in(text):
        parser = _Parser(text)
        operand = _operand(parser.side(), 0)
        parser.expect("the end", "end")
        return operand


class _Token(NamedTuple):
    kind: str
    """A group of `_TOKEN`; a keyword, in small letters, and a sign are their own; `end` and `unknown` come last."""
    text: str
    place: int


class _Parser:
    """Recursive descent: a method for each rule of the grammar. Raises: MisplacedError, InputError."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise InputError(f"The query is too long; at most {MAX_CHARACTERS} characters.")
        self._text, self._tokens, self._num_open = text, _tokens(text), 0
        self._next = next(self._tokens)

    def _take(self, *kinds: str) -> _Token | None:
        """The next token, if it is of one of these kinds."""
        token = self._next
        if token.kind not in kinds:
            return None
        self._next = next(self._tokens, token)
        return token

    def expect(self, words: str, *kinds: str) -> _Token:
        """The next token, which must be of one of these kinds; `words` say what may stand here."""
        if (token := self._take(*kinds)) is None:
            raise self._error(words)
        return token

    def any(self) -> Condition:
        return self._joined("or", lambda: self._joined("and", self._one))

    def _joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Combination(word, tuple(parts))

    def _one(self) -> Condition:
        opening = self._take("not", "(")
        if opening is None:
            return self._comparison()
        self._num_open += 1
        if self._num_open > _MAX_OPEN:
            raise InputError(_TOO_LONG)
        condition = self.any() if opening.kind == "(" else Combination("not", (self._one(),))
        if opening.kind == "(":
            self.expect("and, or, )", ")")
        self._num_open -= 1
        return condition

    def _comparison(self) -> Condition:
        place, links = self._next.place, list[Condition]()
        side = self.side(f"{_SIDE}, not, (")
        while operator := self._take("operator"):
            left, place = side, self._next.place
            side = self.side()
            links.append(_compared(left, _SPELLINGS.get(operator.text, operator.text), side, place))
        if links:
            return links[0] if len(links) == 1 else Combination("and", tuple(links))
        operand, values = _operand(side, place), list[Value | Operand]()
        if self._take("is"):
            word = "!=" if self._take("not") else "="
            wanted = self.expect("not, null, nan", "null", "nan", "inf")
            return Comparison(operand, word, (_LITERALS[wanted.kind](wanted.text),))
        negated, test = self._take("not"), self._take("in", "like", "between")
        if test is None:
            if negated or self._next.kind not in ("and", "or", ")", "end"):
                raise self._error("in, like, between" if negated else f"{_TESTS}, and, or, the end")
            return Comparison(operand, "=", (True,))
        if test.kind == "like":
            values.append(_unquoted(self.expect("text in quotes", "text").text))
        elif test.kind == "between":
            values.append(self.side())
            self.expect("and", "and")
            values.append(self.side())
        else:
            self.expect("(", "(")
            values.append(self.side())
            while self._take(","):
                values.append(self.side())
            self.expect("a comma, )", ")")
        made = Comparison(operand, test.kind, tuple(values))
        return made if negated is None else Combination("not", (made,))

    def side(self, expected: str = _SIDE) -> Value | Operand:
        if literal := self._take(*_LITERALS):
            value: Value = _LITERALS[literal.kind](literal.text)
            return value
        name, step = self.expect(expected, "word"), None
        if not re.fullmatch(r"\w+", name.text) or not self._take("("):
            return _field(name)
        measured = _field(self.expect("a field", "word"))
        if self._take(","):
            step = _LITERALS["number"](self.expect("a number", "number").text)
        self.expect("a comma, )", ")")
        return replace(measured, function=name.text.lower(), step=step, start=name.place)

    def _error(self, expected: str) -> MisplacedError:
        """The error at the next token, with what may stand there."""
        kind, _, place = self._next
        word, remedy = _WORD.match(self._text, place)[0], ""  # type: ignore[index]
        if word in _OTHER_QUOTES:
            return MisplacedError(place, "Text stands in straight quotes, ' or \":")
        if kind == "unknown" and word in "'\"":
            return MisplacedError(place, "The quote that opens here is not closed:")
        if _NAME_AT_END.search(self._text[:place]):
            remedy = '; a name with other signs or blanks stands in quotes, metrics."f1_C++"'
        elif "text in quotes" in expected and word[:1].isalnum():
            remedy = f"; with quotes it is text: '{word}'"
        message = "The query ends too early" if kind == "end" else f"The query goes wrong at {word!r}"
        return MisplacedError(place, f"{message}; expected: {expected}{remedy}:")


def _tokens(text: str) -> Iterator[_Token]:
    """Yield the tokens of a query, and last its end, or the place from which on there is none."""
    place = 0
    while found := _TOKEN.match(text, place):
        kind, place = str(found.lastgroup), found.end()
        word = found[kind].lower()
        yield _Token(word if kind == "sign" or word in _KEYWORDS else kind, found[kind], found.start(kind))
    rest = text[place:].lstrip(" \t\f\r\n")
    yield _Token("unknown", rest, len(text) - len(rest)) if rest else _Token("end", "", len(text.rstrip()))


def _field(word: _Token) -> Operand:
    """The field of a name, of which the part after the last dot may stand in quotes: `metrics."f1_C++"`."""
    name, is_quoted = word.text, word.text[-1] in "'\""
    if is_quoted:
        area, quote, rest = name.partition("." + name[-1])
        name = f"{area}.{_unquoted(quote[1] + rest)}"
    return Operand(name, is_quoted=is_quoted, place=word.place, start=word.place)


def _compared(left: Value | Operand, operator: str, right: Value | Operand, place: int) -> Comparison:
    """Comparison of two sides, its field on the left; the right one stands at a place."""
    if isinstance(left, Operand):
        return Comparison(left, operator, (right,))
    return Comparison(_operand(right, place), _MIRRORED.get(operator, operator), (left,))


def _operand(side: Value | Operand, place: int) -> Operand:
    if not isinstance(side, Operand):
        raise MisplacedError(place, "There should be a field here, such as metrics.f1 or task:")
    return side


def _unquoted(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0])
