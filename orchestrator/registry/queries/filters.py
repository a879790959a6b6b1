"""Parser of the query language: from text to a tree of comparisons, or an error with a caret under the wrong place.

The grammar is in filters.lark; `orchestrator help queries` tells what it means.
"""

import math
import re
from collections.abc import Callable, Collection
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from orchestrator.errors import InputError
from orchestrator.registry.queries.query_tree import (
    Age,
    Combination,
    Comparison,
    Condition,
    FieldName,
    HistoryValue,
    Not,
    Operand,
    Value,
    error_at,
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


class _Part(NamedTuple):
    """Side of a comparison with its place in the text."""

    value: Value | Operand
    place: int


class _MisplacedError(Exception):
    """A part that the grammar allows and the language does not, with its place."""

    def __init__(self, place: int, message: str) -> None:
        super().__init__(message)
        self.place = place


def parse_filter(text: str) -> Condition:
    """Parse a query into its tree. Raises: InputError with a caret under the wrong place."""
    condition: Condition = _parse(text, "start")
    comparisons, depth = _size(condition)
    if comparisons > MAX_COMPARISONS or depth > MAX_DEPTH:
        raise InputError(f"The query is too long; at most {MAX_COMPARISONS} comparisons and {MAX_DEPTH} nested parts.")
    return condition


def parse_operand(text: str) -> Operand:
    """Parse a field, or a function of one: `best(metrics.f1)`. Raises: InputError with a caret."""
    part: _Part = _parse(text, "operand")
    if not isinstance(part.value, Operand):
        raise error_at(text, part.place, f"{shown_word(text, part.place)} is no field:")
    return part.value


def _parse(text: str, start: str) -> Any:
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"The query is too long; at most {MAX_CHARACTERS} characters.")
    try:
        return _grammar().parse(text, start=start)
    except UnexpectedInput as error:
        raise _explained(error, text, start) from None
    except (_MisplacedError, VisitError) as error:
        cause = error.orig_exc if isinstance(error, VisitError) else error
        if not isinstance(cause, _MisplacedError):
            raise
        raise error_at(text, cause.place, f"{cause}:") from None


@lru_cache
def _grammar() -> Lark:
    """The parser. It builds the tree while it reads, which needs no recursion however deep the text is nested."""
    grammar = Path(__file__).with_name("filters.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", start=["start", "operand"], maybe_placeholders=True, transformer=_Tree())


class _Tree(Transformer[Token, Any]):
    """Builder of the tree, from the leaves up; its methods are named like the rules of the grammar."""

    def any(self, parts: list[Condition]) -> Condition:
        return Combination("or", tuple(parts))

    def all(self, parts: list[Condition]) -> Condition:
        return Combination("and", tuple(parts))

    def negation(self, parts: list[Any]) -> Condition:
        return Not(parts[1])

    def truth(self, parts: list[_Part]) -> Condition:
        return Comparison(_operand(parts[0], "as a condition"), "=", (True,))

    def chain(self, parts: list[Any]) -> Condition:
        sides, operators = parts[::2], [_SPELLINGS.get(operator, str(operator)) for operator in parts[1::2]]
        links = [
            _compared(left, operator, right) for left, operator, right in zip(sides, operators, sides[1:], strict=False)
        ]
        return links[0] if len(links) == 1 else Combination("and", tuple(links))

    def tested(self, parts: list[Any]) -> Condition:
        operand, negation, word, *values = parts
        operator = str(word).lower()
        made = Comparison(_operand(operand, f"before {operator}"), operator, tuple(value.value for value in values))
        return made if negation is None else Not(made)

    def is_so(self, parts: list[Any]) -> Condition:
        operand, negation, value = parts
        operator = "=" if negation is None else "!="
        return Comparison(_operand(operand, "before is"), operator, (self.literal([value]).value,))

    def pattern(self, parts: list[Token]) -> _Part:
        if parts[0].type == "FIELD":
            raise _MisplacedError(parts[0].start_pos or 0, f"Text stands in quotes: like '{parts[0]}'")
        return self.literal(parts)

    def literal(self, parts: list[Token]) -> _Part:
        return _Part(_LITERALS[parts[0].type](parts[0]), parts[0].start_pos or 0)

    def field(self, parts: list[Token]) -> _Part:
        return _Part(_field_name(parts[0]), parts[0].start_pos or 0)

    def history(self, parts: list[Token]) -> _Part:
        function, metric, *step = parts
        place = function.start_pos or 0
        number = _LITERALS["NUMBER"](step[0]) if step else None
        return _Part(HistoryValue(function.lower(), _field_name(metric), number, place), place)  # type: ignore[arg-type]


def _compared(left: _Part, operator: str, right: _Part) -> Comparison:
    """Comparison of two sides, its field on the left."""
    if isinstance(left.value, Operand):
        return Comparison(left.value, operator, (right.value,))
    return Comparison(_operand(right, "on one side"), _MIRRORED[operator], (left.value,))


def _operand(part: _Part, where: str) -> Operand:
    if not isinstance(part.value, Operand):
        raise _MisplacedError(part.place, f"There should be a field {where}, such as metrics.f1 or task")
    return part.value


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
    except (UnexpectedInput, VisitError, _MisplacedError):
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
