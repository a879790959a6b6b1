"""Words for what the parser of queries expected: `expected and, or, or the end`."""

from collections.abc import Collection

_OTHER_WORDS = {
    "FIELD": "a field",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": "a comma",
    "NULL": "null",
    "_NOT": "not",
    "_AND": "and",
    "_OR": "or",
    "$END": "the end",
}


def in_words(tokens: Collection[str]) -> str:
    """Words for what may stand in a place: `and, or, or the end`. Of what hardly anybody means nothing is said."""
    if "FIELD" in tokens and "_NOT" in tokens:
        words = ["a field (metrics.f1, params.learning_rate, task, …)", "not", "("]
    elif "FIELD" in tokens and "NUMBER" in tokens:
        words = ["a number", "text in quotes", "a date", "an age (7d)", "a field"]
    elif "_IN" in tokens:
        words = ["a comparison (= != < <= > >=)", "in", "like", "between", "is"]
    elif "TEXT" in tokens:
        words = ["text in quotes"]
    elif "NUMBER" in tokens:
        words = ["a number"]
    else:
        words = [word for name, word in _OTHER_WORDS.items() if name in tokens]
    if len(words) < 3:
        return " or ".join(words)
    return ", ".join(words[:-1]) + f", or {words[-1]}"
