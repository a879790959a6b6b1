"""Parser of the query language: from text to a tree of comparisons, or an error with a caret under the wrong place.

The grammar is in filters.lark. A comparison with a field that a run does not have is false, `!=` as well; `not` makes
it true. `x = null` selects runs without x, `x != null` runs with x. In `like`, `%` stands for any text and `_` for any
character, and case is ignored.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from orchestrator.errors import InputError

MAX_CHARACTERS = 10_000
MAX_COMPARISONS = 200
MAX_DEPTH = 50

Value = str | float | bool | None


@dataclass(frozen=True)
class Comparison:
    """Comparison `field operator value`; `place` is the position of the field in the text."""

    field: str
    operator: str
    """One of = != < <= > >= in like"""
    values: tuple[Value, ...]
    place: int = 0


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

_NAMES_OF_TOKENS = {
    "FIELD": "a field (metrics.f1, params.learning_rate, task, …)",
    "OPERATOR": "a comparison (= != < <= > >=)",
    "_IN": "in",
    "_LIKE": "like",
    "_NOT": "not",
    "_AND": "and",
    "_OR": "or",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": "a comma",
    "NUMBER": "a number",
    "TEXT": "text in quotes",
    "TRUE": "true",
    "FALSE": "false",
    "NULL": "null",
    "$END": "the end",
}


def parse_filter(text: str) -> Condition | None:
    """Parse a query into its tree; None for an empty one. Raises: InputError with a caret under the wrong place."""
    if not text.strip():
        return None
    if len(text) > MAX_CHARACTERS or text.count("(") > MAX_DEPTH * 4:
        raise InputError(f"The query is too long; at most {MAX_CHARACTERS} characters and {MAX_DEPTH} nested parts.")
    try:
        condition: Condition = _Tree().transform(_grammar().parse(text))
    except UnexpectedInput as error:
        raise _explained(error, text) from None
    comparisons, depth = _size(condition)
    if comparisons > MAX_COMPARISONS or depth > MAX_DEPTH:
        raise InputError(f"The query is too long; at most {MAX_COMPARISONS} comparisons and {MAX_DEPTH} nested parts.")
    return condition


def error_at(text: str, place: int, message: str) -> InputError:
    """Make an error about one place in the text: the message, the line, and a caret under the place."""
    start = text.rfind("\n", 0, place) + 1
    line = text[start:].split("\n", 1)[0]
    return InputError(f"{message}\n  {line}\n  {' ' * (place - start)}^")


@lru_cache
def _grammar() -> Lark:
    grammar = Path(__file__).with_name("filters.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=False)


class _Tree(Transformer[Token, Any]):
    """Builder of the tree, from the leaves up; its methods are named like the rules of the grammar."""

    def any(self, parts: list[Condition]) -> Condition:
        return Combination("or", tuple(parts))

    def all(self, parts: list[Condition]) -> Condition:
        return Combination("and", tuple(parts))

    def negation(self, parts: list[Condition]) -> Condition:
        return Not(parts[0])

    def compare(self, parts: list[Any]) -> Condition:
        field, operator, value = parts
        return _comparison(field, str(operator), (value,))

    def member(self, parts: list[Any]) -> Condition:
        return _comparison(parts[0], "in", parts[1])

    def no_member(self, parts: list[Any]) -> Condition:
        return Not(self.member(parts))

    def like(self, parts: list[Any]) -> Condition:
        return _comparison(parts[0], "like", (_unquoted(parts[1]),))

    def not_like(self, parts: list[Any]) -> Condition:
        return Not(self.like(parts))

    def choices(self, values: list[Value]) -> tuple[Value, ...]:
        return tuple(values)

    def value(self, parts: list[Token]) -> Value:
        token = parts[0]
        if token.type == "NUMBER":
            return float(token)
        if token.type == "TEXT":
            return _unquoted(token)
        return {"TRUE": True, "FALSE": False, "NULL": None}[token.type]


def _comparison(field: Token, operator: str, values: tuple[Value, ...]) -> Comparison:
    return Comparison(str(field), operator, values, field.start_pos or 0)


def _unquoted(token: Token) -> str:
    quote = token[0]
    return str(token[1:-1]).replace(quote * 2, quote)


def _size(condition: Condition) -> tuple[int, int]:
    """Number of comparisons and depth of a tree; without recursion, since the tree may be too deep for it."""
    comparisons, deepest, pending = 0, 0, [(condition, 1)]
    while pending:
        part, depth = pending.pop()
        deepest = max(deepest, depth)
        if isinstance(part, Comparison):
            comparisons += 1
        else:
            inner = part.parts if isinstance(part, Combination) else (part.part,)
            pending += [(child, depth + 1) for child in inner]
    return comparisons, deepest


def _explained(error: UnexpectedInput, text: str) -> InputError:
    place = error.pos_in_stream
    if isinstance(error, UnexpectedToken):
        expected, found = error.accepts, error.token
        if found.type == "$END":
            place, message = len(text.rstrip()), "The query ends too early"
        else:
            message = f"The query goes wrong at {str(found)!r}"
    else:
        assert isinstance(error, UnexpectedCharacters)
        if place is not None and text[place] in "'\"" and "TEXT" in (error.allowed or ()):
            return error_at(text, place, "The quote that opens here is not closed:")
        expected, message = error.allowed, f"The query goes wrong at {text[place or 0]!r}"
    words = [meaning for name, meaning in _NAMES_OF_TOKENS.items() if name in (expected or ())]
    return error_at(text, place or 0, f"{message}; expected {' or '.join(words)}:")
