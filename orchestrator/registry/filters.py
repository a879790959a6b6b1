"""Parser of the query language: from text to a tree of comparisons, or an error with a caret under the wrong place.

The grammar is in filters.lark; `orchestrator help queries` tells what it means.
"""

import math
import re
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from lark import Lark, Token, Transformer, v_args
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
    Operand,
    Value,
    comparisons,
    errors_in,
)

MAX_CHARACTERS, MAX_COMPARISONS, MAX_DEPTH = 10_000, 200, 50
_OTHER_QUOTES = frozenset("“”„‟‘’‚‛«»‹›`´")
_NAME_AT_END = re.compile(r"\b(metrics|params|tags)\.[\w./-]*\s*$")
_WORD = re.compile(r"[\w.:%@+/-]{1,40}|.?", re.DOTALL)
_WHOLE = re.compile(r"[+-]?\d{1,4000}")
"""A whole number; longer ones are beyond Python's own limit, and infinite for every column."""
_SPELLINGS = {"==": "=", "<>": "!="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
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
_IN_WORDS = {
    **{"FIELD": "a field (metrics.f1, params.recipe.size, task, …)", "NUMBER": "a number", "TEXT": "text in quotes"},
    **{"DATE": "a date", "AGE": "an age (7d)", "OPERATOR": "a comparison (= != < <= > >=)", "NOT": "not", "IN": "in"},
    **{"LIKE": "like", "BETWEEN": "between", "_IS": "is", "NULL": "null", "LPAR": "(", "COMMA": "a comma", "RPAR": ")"},
    **{"_AND": "and", "_OR": "or", "$END": "the end"},
}
"""Words for what may stand in a place; of what hardly anybody means nothing is said."""
_Side = Operand | Token
"""Side of a comparison: a field, or the token of a literal, whose `value` is what it means."""


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
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"The query is too long; at most {MAX_CHARACTERS} characters.")
    with errors_in(text):
        try:
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


@v_args(inline=True)
class _Tree(Transformer[Token, Any]):
    """Builder of the tree, from the leaves up; its methods are named like the rules of the grammar."""

    def any(self, *parts: Condition) -> Condition:
        return Combination("or", parts)

    def all(self, *parts: Condition) -> Condition:
        return Combination("and", parts)

    def negation(self, negated: Token, part: Condition) -> Condition:
        return Combination("not", (part,))

    def truth(self, side: _Side) -> Condition:
        return Comparison(_operand(side), "=", (True,))

    def chain(self, *parts: Any) -> Condition:
        sides, operators = parts[::2], [_SPELLINGS.get(operator, str(operator)) for operator in parts[1::2]]
        links = tuple(map(_compared, sides, operators, sides[1:]))
        return links[0] if len(links) == 1 else Combination("and", links)

    def tested(self, side: _Side, negated: Token | None, word: Token, *values: _Side) -> Condition:
        made = Comparison(_operand(side), word.lower(), tuple(map(_value, values)))
        return made if negated is None else Combination("not", (made,))

    def is_so(self, side: _Side, negated: Token | None, value: Token) -> Condition:
        return Comparison(_operand(side), "=" if negated is None else "!=", (value.value,))

    def field(self, token: Token) -> FieldName:
        """The name, of which the part after the last dot may stand in quotes: `metrics."f1_C++"`."""
        area, quote, rest = token.partition("." + token[-1]) if token[-1] in "'\"" else (str(token), "", "")
        name = f"{area}.{_unquoted(quote[1] + rest)}" if quote else area
        return FieldName(name, bool(quote), token.start_pos or 0)

    def history(self, function: Token, metric: Token, step: Token | None = None) -> HistoryValue:
        number = None if step is None else step.value
        return HistoryValue(function.lower(), self.field(metric), number, function.start_pos or 0)


def _compared(left: _Side, operator: str, right: _Side) -> Comparison:
    """Comparison of two sides, its field on the left."""
    if isinstance(left, Token):
        return Comparison(_operand(right), _MIRRORED.get(operator, operator), (left.value,))
    return Comparison(left, operator, (_value(right),))


def _value(side: _Side) -> Value | Operand:
    return side.value if isinstance(side, Token) else side


def _operand(side: _Side) -> Operand:
    if isinstance(side, Token):
        raise MisplacedError(side.start_pos or 0, "There should be a field here, such as metrics.f1 or task:")
    return side


def _unquoted(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0])


def _explained(error: UnexpectedInput, text: str, start: str) -> MisplacedError:
    """The error with what may stand in its place."""
    ends = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    place, remedy = len(text.rstrip()) if ends else error.pos_in_stream or 0, ""
    word = _WORD.match(text, place)[0]  # type: ignore[index]
    if word in _OTHER_QUOTES:
        return MisplacedError(place, "Text stands in straight quotes, ' or \":")
    if isinstance(error, UnexpectedCharacters) and word in "'\"":
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
