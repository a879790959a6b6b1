"""Parser of the query language: from text to a tree of comparisons, or an error with a caret under the wrong place.

The grammar is in filters.lark; `orchestrator help queries` tells what it means.
"""

import math
import re
from collections.abc import Callable, Collection
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from orchestrator.errors import InputError
from orchestrator.registry.query_tree import (
    Age,
    Combination,
    Comparison,
    Condition,
    FieldName,
    HistoryValue,
    MisplacedError,
    Not,
    Operand,
    Value,
    error_at,
    errors_in,
    shown_word,
)

MAX_CHARACTERS, MAX_COMPARISONS, MAX_DEPTH = 10_000, 200, 50
_OTHER_QUOTES = "“”„‟‘’‚‛«»‹›`´"
_NAME_AT_END = re.compile(r"\b(metrics|params|tags)\.[\w./-]*\s*$")
_WHOLE = re.compile(r"[+-]?\d{1,4000}")
"""A whole number; longer ones are beyond Python's own limit, and infinite for every column."""
_SPELLINGS = {"==": "=", "<>": "!="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_LITERALS: dict[str, Callable[[Token], Value]] = {
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
_Side = Operand | Token
"""Side of a comparison: a field, or the token of a literal, whose `value` is what it means."""


def parse_filter(text: str) -> Condition:
    """Parse a query into its tree. Raises: InputError with a caret under the wrong place."""
    condition: Condition = _parse(text, "start")
    comparisons, depth = _size(condition)
    if comparisons > MAX_COMPARISONS or depth > MAX_DEPTH:
        raise InputError(f"The query is too long; at most {MAX_COMPARISONS} comparisons and {MAX_DEPTH} nested parts.")
    return condition


def parse_operand(text: str) -> Operand:
    """Parse a field, or a function of one: `best(metrics.f1)`. Raises: InputError with a caret."""
    side: _Side = _parse(text, "operand")
    if isinstance(side, Token):
        place = side.start_pos or 0
        raise error_at(text, place, f"{shown_word(text, place)} is no field:")
    return side


def _parse(text: str, start: str) -> Any:
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"The query is too long; at most {MAX_CHARACTERS} characters.")
    try:
        with errors_in(text):
            return _grammar().parse(text, start=start)
    except UnexpectedInput as error:
        raise _explained(error, text, start) from None


@lru_cache
def _grammar() -> Lark:
    """The parser. It builds the tree while it reads, which needs no recursion however deep the text is nested."""
    return Lark(
        Path(__file__).with_name("filters.lark").read_text(encoding="utf-8"),
        parser="lalr",
        start=["start", "operand"],
        maybe_placeholders=True,
        transformer=_Tree(),
        lexer_callbacks={name: partial(_with_value, read) for name, read in _LITERALS.items()},
    )


def _with_value(read: Callable[[Token], Value], token: Token) -> Token:
    token.value = read(token)
    return token


class _Tree(Transformer[Token, Any]):
    """Builder of the tree, from the leaves up; its methods are named like the rules of the grammar."""

    def any(self, parts: list[Condition]) -> Condition:
        return Combination("or", tuple(parts))

    def all(self, parts: list[Condition]) -> Condition:
        return Combination("and", tuple(parts))

    def negation(self, parts: list[Any]) -> Condition:
        return Not(parts[1])

    def truth(self, parts: list[_Side]) -> Condition:
        return Comparison(_operand(parts[0], "as a condition"), "=", (True,))

    def chain(self, parts: list[Any]) -> Condition:
        sides, operators = parts[::2], [_SPELLINGS.get(operator, str(operator)) for operator in parts[1::2]]
        links = tuple(map(_compared, sides, operators, sides[1:]))
        return links[0] if len(links) == 1 else Combination("and", links)

    def tested(self, parts: list[Any]) -> Condition:
        operand, negation, word, *values = parts
        operator = str(word).lower()
        made = Comparison(_operand(operand, f"before {operator}"), operator, tuple(map(_value, values)))
        return made if negation is None else Not(made)

    def is_so(self, parts: list[Any]) -> Condition:
        operand, negation, value = parts
        return Comparison(_operand(operand, "before is"), "=" if negation is None else "!=", (value.value,))

    def pattern(self, parts: list[Token]) -> Token:
        if parts[0].type == "FIELD":
            raise MisplacedError(parts[0].start_pos or 0, f"Text stands in quotes: like '{parts[0]}':")
        return parts[0]

    def field(self, parts: list[Token]) -> FieldName:
        return _field_name(parts[0])

    def history(self, parts: list[Token]) -> HistoryValue:
        function, metric, *step = parts
        number = step[0].value if step else None
        return HistoryValue(function.lower(), _field_name(metric), number, function.start_pos or 0)


def _compared(left: _Side, operator: str, right: _Side) -> Comparison:
    """Comparison of two sides, its field on the left."""
    if isinstance(left, Token):
        return Comparison(_operand(right, "on one side"), _MIRRORED[operator], (left.value,))
    return Comparison(left, operator, (_value(right),))


def _value(side: _Side) -> Value | Operand:
    return side.value if isinstance(side, Token) else side


def _operand(side: _Side, where: str) -> Operand:
    if isinstance(side, Token):
        raise MisplacedError(side.start_pos or 0, f"There should be a field {where}, such as metrics.f1 or task:")
    return side


def _field_name(token: Token) -> FieldName:
    """The name, of which the part after the last dot may stand in quotes: `metrics."f1_C++"`."""
    plain, place = str(token), token.start_pos or 0
    if plain[-1] not in "'\"":
        return FieldName(plain, None, place)
    area, _, rest = plain.partition("." + plain[-1])
    return FieldName(area, _unquoted(plain[-1] + rest), place)


def _unquoted(text: str) -> str:
    return str(text[1:-1]).replace(text[0] * 2, text[0])


def _size(condition: Condition) -> tuple[int, int]:
    """Number of comparisons and depth of a tree; without recursion, since the tree may be too deep for it."""
    comparisons, deepest, pending = 0, 0, [(condition, 1)]
    while pending:
        part, depth = pending.pop()
        deepest = max(deepest, depth)
        if isinstance(part, Comparison):
            comparisons += len(part.values)
        else:
            inner = part.parts if isinstance(part, Combination) else (part.part,)
            pending += [(child, depth + 1) for child in inner]
    return comparisons, deepest


def _explained(error: UnexpectedInput, text: str, start: str) -> InputError:
    place = error.pos_in_stream or 0
    expected: Collection[str]
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return error_at(text, len(text.rstrip()), f"The query ends too early; expected {_in_words(error.accepts)}:")
    expected = _accepted_after(text[:place], start)
    message = f"The query goes wrong at {shown_word(text, place)!r}"
    if isinstance(error, UnexpectedCharacters):
        expected = expected or error.allowed or ()
        if text[place] in _OTHER_QUOTES:
            return error_at(text, place, "Text stands in straight quotes, ' or \":")
        if text[place] in "'\"" and ("TEXT" in expected or text[:place].endswith(".")):
            return error_at(text, place, "The quote that opens here is not closed:")
        word = shown_word(text, place)
        if "NUMBER" in expected and word[0].isalnum():
            message = f"{word!r} is no number, date or age, and text stands in quotes ('{word}')"
    remedy = ""
    if _NAME_AT_END.search(text[:place]):
        remedy = '; a name with other signs or blanks stands in quotes, metrics."f1_C++"'
    return error_at(text, place, f"{message}; expected {_in_words(expected)}{remedy}:")


def _accepted_after(text: str, start: str) -> Collection[str]:
    """Tokens that may follow the beginning of a query; the lexer's own list has those of other places as well."""
    parser = _grammar().parse_interactive(text, start=start)
    try:
        parser.exhaust_lexer()
    except (UnexpectedInput, MisplacedError):
        return ()
    return list(parser.accepts())  # type: ignore[no-untyped-call]


_IN_WORDS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("FIELD", "NOT"), ("a field (metrics.f1, params.recipe.size, task, …)", "not", "(")),
    (("FIELD", "NUMBER"), ("a number", "text in quotes", "a date", "an age (7d)", "a field")),
    (("IN",), ("a comparison (= != < <= > >=)", "in", "like", "between", "is")),
    (("TEXT",), ("text in quotes",)),
    (("NUMBER",), ("a number",)),
)
"""Words for what may stand in a place, by the tokens that tell it; of what hardly anybody means nothing is said."""
_OTHER_WORDS = {
    **{"FIELD": "a field", "LPAR": "(", "RPAR": ")", "COMMA": "a comma", "NULL": "null", "NAN": "nan", "INF": "inf"},
    **{"NOT": "not", "_AND": "and", "_OR": "or", "$END": "the end"},
}


def _in_words(tokens: Collection[str]) -> str:
    """Words for what may stand in a place: `and, or, or the end`."""
    others = tuple(word for name, word in _OTHER_WORDS.items() if name in tokens)
    words = next((words for signs, words in _IN_WORDS if set(signs) <= set(tokens)), others)
    if len(words) < 3:
        return " or ".join(words)
    return ", ".join(words[:-1]) + f", or {words[-1]}"
