"""Values of a table's cells: classes, numbers, lists, and what stands for nothing.

Spellings are decided here alone, for all readers and for `init`.
"""

import ast
import json
import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

_LARGEST = 1e30
"""Numbers beyond this leave no room for arithmetic in float32."""
_INVISIBLE = dict.fromkeys(
    [0xAD, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFEFF]
)
"""Characters without width. U+200C and U+200D are none of them: Persian, Indic scripts and emoji need them."""
NO_LABEL_MARKS = ("-1", "-")
"""Labels that data sets write in rows without one, where they are no classes."""
_ARRAY = re.compile(r"array\((\[.*?\])(?:, dtype=\w+)?\)", re.DOTALL)
"""NumPy's arrays within objects, as pandas writes them into a CSV file."""
_WITHOUT_COMMAS = re.compile(r"""['"]\s+['"]""")
"""Texts of an array that NumPy prints without commas, which Python would join."""
_COMMA_NUMBER = re.compile(r"[+-]?(\d+)(?:,(\d+))?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")


def is_missing(value: object) -> bool:
    r"""Whether a value stands for nothing: null, a blank cell, NaN, infinity, MySQL's \N.

    >>> [is_missing(value) for value in (None, " ", float("nan"), "NaN", "None", 0)]
    [True, True, True, True, False, False]
    """
    if isinstance(value, str):
        return value.strip().lower() in ("", "nan", r"\n")
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def label_text(value: object) -> str:
    """A label or category as text; what JSON has a word for goes by that word."""
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)


def shown_name(name: str) -> str:
    """A label or the name of a column for a message, quoted where blanks at its ends would not be seen."""
    return name[:40] if name == name.strip() else repr(name[:40])


def read_label(value: object) -> str | None:
    """The name of a class or category in its one spelling, None where it is missing.

    Whole numbers are without a point, truth values in lower case, texts in Unicode's composed form (NFC), without
    blanks around them or characters that nobody sees.

    >>> read_label(1.0), read_label("1.00"), read_label("TRUE"), read_label(" cafe\u0301\u200b")
    ('1', '1', 'true', 'café')

    Raises: ValueError for a list or an object.
    """
    if is_missing(value):
        return None
    if isinstance(value, dict):
        within = next(iter(value), "name")
        raise ValueError(f"{str(value)[:80]} is an object; write the class's name, or read a value in it: .{within}")
    if isinstance(value, list):
        raise ValueError(f"{str(value)[:80]} is a list; write one class, or set task.head to multi_label")
    text = " ".join(unicodedata.normalize("NFC", label_text(value)).translate(_INVISIBLE).split())
    if re.fullmatch(r"-?(0|[1-9]\d*)\.0+", text):
        return str(int(float(text)))
    return text.lower() if text.lower() in ("true", "false") else text or None


def stands_for_no_label(label: str, classes: Collection[str], *, are_known: bool = False) -> bool:
    """Whether -1 beside whole numbers from 0, or - beside words, is the mark of a row without a label.

    Args:
        classes: all labels of a column. -1 beside 0 and 1 alone is a class: negative, neutral, positive.
        are_known: whether a task has these classes and no other.

    >>> [stands_for_no_label("-1", classes) for classes in (["-1", "0", "1", "2"], ["-1", "0", "1"], ["-1", "1", "2"])]
    [True, False, False]
    >>> stands_for_no_label("-1", ["0", "1"], are_known=True), stands_for_no_label("-", ["-", "yes", "no"])
    (True, True)
    """
    if label not in NO_LABEL_MARKS:
        return False
    others = set(classes).difference(NO_LABEL_MARKS)
    if label == "-1":
        return "0" in others and all(map(str.isdecimal, others)) and (are_known or len(others) > 2)
    return len(others) > 1 and all(any(map(str.isalnum, other)) for other in others)


def look_alike(labels: Iterable[str]) -> list[list[str]]:
    """Labels that are the same number, or differ in case, width, blanks, underscores and hyphens alone.

    >>> look_alike(["1.50", "1.5", "Not_Spam", "not spam", "ham"])
    [['1.50', '1.5'], ['Not_Spam', 'not spam']]
    """
    alike: dict[object, list[str]] = defaultdict(list)
    for label in labels:
        key: object = re.sub(r"[\s_-]+", " ", unicodedata.normalize("NFKC", label).casefold())
        with suppress(ValueError):
            key = float(label)
        alike[key].append(label)
    return [group for group in alike.values() if len(group) > 1]


def read_number(value: object, *, decimal_comma: bool = False) -> float | None:
    """A number, None where it is missing. Raises: ValueError when it is something else, with the remedy.

    >>> read_number("2.5"), read_number(""), read_number(True), read_number("2,5", decimal_comma=True)
    (2.5, None, 1.0, 2.5)
    """
    if is_missing(value):
        return None
    text = value.replace(",", ".") if decimal_comma and isinstance(value, str) else value
    try:
        number = float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{str(value)[:80]!r} {_number_problem(str(value).strip())}") from None
    if math.isfinite(number) and abs(number) > _LARGEST:
        raise ValueError(f"{number:g} is beyond {_LARGEST:g}")
    return number if math.isfinite(number) else None


def number_problem(value: object) -> str | None:
    """Say what keeps a value from being a number, of which truth values are none; None: nothing does."""
    try:
        is_none = isinstance(value, bool) or read_number(value) is None
    except ValueError as error:
        return str(error)
    return f"{value!r} is not a number" if is_none else None


def is_number(value: object) -> bool:
    """Whether a value is a number, or written as one."""
    return number_problem(value) is None


def _number_problem(text: str) -> str:
    if text.endswith("%"):
        return "is in percent; write the number alone, without the percent sign"
    if _THOUSANDS.fullmatch(text):
        is_sure = text.count(",") > 1 or "." in text
        return f"has a comma between thousands (leave it out){'' if is_sure else ' or a decimal comma (write a point)'}"
    return "has a decimal comma; write a point" if re.fullmatch(r"[+-]?[\d.]*,\d+", text) else "is not a number"


def has_decimal_commas(values: Iterable[object]) -> bool:
    """Whether the numbers of a column are written with decimal commas, and some can be read in no other way.

    >>> [has_decimal_commas(values) for values in (["3,5", "4"], ["1,250", "2,000"], ["1,250", "0,5"], ["3,5", "1.2"])]
    [True, False, True, False]
    """
    found = [_COMMA_NUMBER.fullmatch(str(value).strip()) for value in values if not is_missing(value)]
    fractions = [(match[1], match[2]) for match in found if match and match[2]]
    sure = any(len(after) != 3 or len(before) > 3 or before[0] == "0" for before, after in fractions)
    return None not in found and sure


def unpack_cell(value: object) -> Any:
    """The list or object that a cell holds as text, in JSON or as Python prints it; every other value as it stands.

    >>> unpack_cell('["x", 1]'), unpack_cell("['x', 'y']"), unpack_cell("array(['x'], dtype=object)"), unpack_cell("[x")
    (['x', 1], ['x', 'y'], "array(['x'], dtype=object)", '[x')
    """
    if not isinstance(value, str) or value.strip()[:1] not in ("[", "{"):
        return value
    with suppress(ValueError, RecursionError):
        return json.loads(value)
    if not _WITHOUT_COMMAS.search(value):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return ast.literal_eval(_ARRAY.sub(r"\1", value))
    return value
