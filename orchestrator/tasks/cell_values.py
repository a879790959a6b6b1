"""Values of a table's cells: classes, numbers, lists, and what stands for nothing.

Spellings are decided here alone, for all readers and for `init`.
"""

import ast
import html
import json
import math
import re
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

_LARGEST = 1e30
"""Numbers beyond this leave no room for arithmetic in float32."""
_INVISIBLE = dict.fromkeys(
    [0xAD, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFE0E, 0xFE0F, 0xFEFF]
)
"""Characters without width. U+200C and U+200D are none of them: Persian, Indic scripts and emoji need them."""
NO_LABEL_MARKS = ("-1", "-100", "-")
"""Labels that data sets write in rows without one, where they are no classes."""
FLAGS = {**dict.fromkeys(("0", "false", "no", "n", "f"), False), **dict.fromkeys(("1", "true", "yes", "y", "t"), True)}
"""Words in lower case that say of a row whether it has a label."""
_ARRAY = re.compile(r"array\((\[.*?\])(?:, dtype=\w+)?\)", re.DOTALL)
"""NumPy's arrays within objects, as pandas writes them into a CSV file."""
_WITHOUT_COMMAS = re.compile(r"""['"]\s+['"]""")
"""Texts of an array that NumPy prints without commas, which Python would join."""
_MISSING = re.compile(r"[nN][aA][nN]|[+-]?(inf|[Ii]nfinity)|\\[nN]")
_COMMA_NUMBER = re.compile(r"[+-]?(\d+)(?:,(\d+))?")
_POINTED_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
_NUMBER_WITH_UNIT = re.compile(r"[+-]?\d+(?:[.,]\d+)?\s*(/\s*\d+|[^\W\d_][^\d,;|]*\d*)")
_NUMBER_SIGNS = str.maketrans("\u2212\u066b", "-.")
"""Minus and the decimal point of Arabic, which Unicode's compatible form (NFKC) leaves as they are."""
_UNITS = r"eur|usd|gbp|chf|jpy|cny|inr|brl|sek|pln|rs\.?|r(?=\$)|kr|zł"
_AROUND_NUMBERS = rf"(?i:[\s%'\u2019$€£¥₹₽₩₺₪₫฿₴]|(?<![^\W\d_])(?:{_UNITS})(?![^\W\d_])|°[cf])"
_TWINS = str.maketrans("асеорхуіјѕһкмтвнοανيك\u2019", "aceopxyijshkmtbhoavیک'")
"""Letters and signs, and those of other alphabets that look the same."""


def is_missing(value: object) -> bool:
    r"""Whether a value stands for nothing: null, a blank cell, NaN, infinity, MySQL's \N.

    >>> [is_missing(value) for value in (None, " ", float("nan"), "NaN", "-Infinity", "None", 0)]
    [True, True, True, True, True, False, False]
    """
    if isinstance(value, str):
        return not value.strip() or _MISSING.fullmatch(value.strip()) is not None
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def label_text(value: object) -> str:
    """A label or category as text; what JSON has a word for goes by that word."""
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)


def shown_name(name: str) -> str:
    """A label or the name of a column for a message, quoted where blanks at its ends would not be seen."""
    return name[:40] if name == name.strip() else repr(name[:40])


def read_label(value: object, *, decimal_comma: bool = False) -> str | None:
    """The name of a class or category in its one spelling, None where it is missing.

    Whole numbers are without a point, truth values in lower case, texts in Unicode's composed form (NFC), without
    blanks around them or characters that nobody sees.

    >>> read_label(1.0), read_label("1.00"), read_label("TRUE"), read_label(" cafe\u0301\u200b")
    ('1', '1', 'true', 'café')

    Raises: ValueError for a list or an object.
    """
    if is_missing(value):
        return None
    value = unpack_cell(value)
    if isinstance(value, dict):
        within = next(iter(value), "name")
        raise ValueError(f"{str(value)[:80]} is an object; write the class's name, or read a value in it: .{within}")
    if isinstance(value, list):
        raise ValueError(f"{str(value)[:80]} is a list; write one class, or set task.head to multi_label")
    text = " ".join(unicodedata.normalize("NFC", label_text(value)).translate(_INVISIBLE).split())
    if re.fullmatch(rf"-?(0|[1-9]\d*)[{'.,' if decimal_comma else '.'}]0+", text):
        return str(int(re.split("[.,]", text)[0]))
    return text.lower() if text.lower() in ("true", "false") else text or None


def is_unlabeled(value: object) -> bool:
    """Whether a value stands for no label, or may: -1 and - are classes in some columns.

    >>> [is_unlabeled(value) for value in ("nan", -1, [-1], "[-1]", [], "no")]
    [True, True, True, True, False, False]
    """
    value = unpack_cell(value)
    if isinstance(value, list):
        return bool(value) and all(map(is_unlabeled, value))
    return not isinstance(value, dict) and read_label(value) in (None, *NO_LABEL_MARKS)


def read_flag(value: object) -> bool | None:
    """Whether a value of 0 and 1, truth values or yes and no says yes; None where it says nothing: empty, NaN, -1.

    Raises: ValueError for any other value.
    """
    flag = (read_label(value) or "-1").lower()
    if flag != "-1" and flag not in FLAGS:
        raise ValueError(f"{value!r} is neither 0 nor 1, true nor false, yes nor no")
    return FLAGS.get(flag)


def stands_for_no_label(label: str, classes: Collection[str], *, are_known: bool = False) -> bool:
    """Whether -1 or -100 beside whole numbers from 0, or - beside words, is the mark of a row without a label.

    Args:
        classes: all labels of a column. -1 beside 0 and 1 alone is a class: negative, neutral, positive.
            -100, which PyTorch's losses ignore, is one beside numbers of three digits.
        are_known: whether a task has these classes and no other.

    >>> [stands_for_no_label("-1", classes) for classes in (["-1", "0", "1", "2"], ["-1", "0", "1"], ["-1", "1", "2"])]
    [True, False, False]
    >>> stands_for_no_label("-1", ["0", "1"], are_known=True), stands_for_no_label("-", ["-", "yes", "no"])
    (True, True)
    >>> [stands_for_no_label("-100", ["-100", "0", other]) for other in ("1", "100")]
    [True, False]
    """
    if label not in NO_LABEL_MARKS:
        return False
    others = set(classes).difference(NO_LABEL_MARKS)
    if label != "-":
        are_numbers = "0" in others and all(map(str.isdecimal, others))
        return are_numbers and (max(map(len, others)) < 3 if label == "-100" else are_known or len(others) > 2)
    return len(others) > 1 and all(any(map(str.isalnum, other)) for other in others)


def look_alike(labels: Iterable[str]) -> list[list[str]]:
    """Labels that are the same number or truth value, or that case, blanks or letters of other scripts tell apart.

    >>> look_alike(["1.50", "1.5", "Not_Spam", "not spam", "ham", "1", "true", "''", "."])
    [['1.50', '1.5'], ['Not_Spam', 'not spam'], ['1', 'true']]
    """
    alike: dict[object, list[str]] = defaultdict(list)
    for label in labels:
        alike[_looks(label)].append(label)
    return [group for group in alike.values() if len(group) > 1]


def other_spelling(label: str, known: Iterable[str]) -> str:
    """The ending of a message about an unknown label that names the known one it looks like; empty without one.

    >>> other_spelling("Spam", ["ham", "spam"]), other_spelling("1", ["ham"])
    ("; 'spam' is another spelling of it: write both in one way", '')
    """
    same = next((name for name in known if name != label and _looks(name) == _looks(label)), None)
    return "" if same is None else f"; {same!r} is another spelling of it: write both in one way"


def _looks(label: str) -> object:
    text = unicodedata.normalize("NFKC", html.unescape(label))
    plain = (text.strip("\u200c\u200d\"'.") or text).casefold()  # signs alone are tags of the Penn Treebank
    with suppress(ValueError):
        return float({"true": "1", "false": "0"}.get(plain, plain))
    return re.sub(r"[\s_\u2010-\u2015-]+", " ", plain).translate(_TWINS)


def read_number(value: object, *, decimal_comma: bool = False) -> float | None:
    """A number, None where it is missing. Raises: ValueError when it is something else, with the remedy.

    >>> read_number("2.5"), read_number(""), read_number(True), read_number("2,5", decimal_comma=True)
    (2.5, None, 1.0, 2.5)
    """
    if is_missing(value):
        return None
    text = _plain_digits(value) if isinstance(value, str) else value
    if decimal_comma and isinstance(text, str):
        text = text.replace(",", ".")
    try:
        number = float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{str(value)[:80]!r} {_number_problem(_plain_digits(str(value)))}") from None
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


def _plain_digits(text: str) -> str:
    """A number as text with the digits and signs of ASCII."""
    return unicodedata.normalize("NFKC", text).translate(_NUMBER_SIGNS).strip()


def is_written_number(text: str) -> bool:
    """Whether a text is a number, also with signs that `read_number` refuses: percent, currencies, thousands.

    >>> [is_written_number(text) for text in ("%20", "1'250.0", "12,50 €", "Rs. 2 500", "1,4", "r1")]
    [True, True, True, True, True, False]
    """
    number = re.sub(_AROUND_NUMBERS, "", _plain_digits(text))
    return re.fullmatch(r"[+-]?(\d+|\d{1,3}([.,]\d{3})+)([.,]\d+)?", number) is not None


def _number_problem(text: str) -> str:
    if is_written_number(text):
        return "has a percent sign, a currency, marks between thousands or a decimal comma; write it as 1250.5"
    unit = _NUMBER_WITH_UNIT.fullmatch(text)
    return f"has {unit[1]!r} behind the number; write the number alone" if unit else "is not a number"


def has_decimal_commas(values: Iterable[object]) -> bool:
    """Whether the numbers of a column have decimal commas and can be nothing else: 1,4 beside 5,12 may be lists.

    >>> [has_decimal_commas(values) for values in (["3,5", "4"], ["1,250", "2,000"], ["1,250", "0,5"], ["3,5", "1.2"])]
    [True, False, True, False]
    >>> [has_decimal_commas(values) for values in (["3", "1,4", "5,12"], ["0,0", "1,0"], ["2,50", "9,99"])]
    [False, True, True]
    """
    fractions = set()
    for value in values:
        if is_missing(value):
            continue
        if (match := _COMMA_NUMBER.fullmatch(_plain_digits(str(value)))) is None:
            return False
        if match[2]:
            fractions.add((match[1], match[2]))
    ends = {after for _, after in fractions}
    vary = len({*map(len, ends)}) > 1 and min(map(len, ends)) == 1 and {before for before, _ in fractions} != {"0"}
    ascend = all(int(before) < int(after) < 100 and after[0] != "0" for before, after in fractions)
    sure = any(len(after) != 3 or len(before) > 3 or before[0] == "0" for before, after in fractions)
    return sure and not (vary and ascend)


def has_thousands_points(values: Iterable[object]) -> bool | None:
    """Whether points of a column's numbers stand between thousands; None where they may as well begin fractions.

    >>> has_thousands_points(["1.250", "13.000", "900"]), has_thousands_points(["1.250", "2.5", "9"])
    (True, False)
    >>> has_thousands_points(["1.250", "13.000"])
    """
    texts = [value.strip() for value in values if isinstance(value, str) and not is_missing(value)]
    pointed = [text for text in texts if "." in text]
    if not pointed or not all(map(_POINTED_THOUSANDS.fullmatch, pointed)):
        return False
    has_hundreds = any(text.lstrip("+-").isdecimal() and len(text.lstrip("+-")) == 3 for text in texts)
    return True if has_hundreds else None if len(pointed) == len(texts) else False


def unpack_cell(value: object) -> Any:
    """The list or object that a cell holds as text, in JSON or as Python prints it; every other value as it stands.

    Python's tuples and sets are lists; a tuple of numbers alone stays text, as an interval.

    >>> unpack_cell('["x", 1]'), unpack_cell("['x', 'y']"), unpack_cell("array(['x'], dtype=object)"), unpack_cell("[x")
    (['x', 1], ['x', 'y'], "array(['x'], dtype=object)", '[x')
    >>> unpack_cell("[(0, 4, 'PER')]"), unpack_cell("{'y', 'x'}"), unpack_cell("set()"), unpack_cell("(25, 32)")
    ([[0, 4, 'PER']], ['x', 'y'], [], '(25, 32)')
    """
    if not isinstance(value, str) or (value[:4] != "set(" and value.lstrip()[:1] not in ("[", "{", "(")):
        return value
    with suppress(ValueError, RecursionError):
        return json.loads(value)
    if not _WITHOUT_COMMAS.search(value):
        with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of what only looks like its numbers: [1or 2]
            found = ast.literal_eval(_ARRAY.sub(r"\1", value.strip()))
            are_numbers = all(
                isinstance(item, int | float) for item in (found if isinstance(found, tuple) else [found])
            )
            return value if are_numbers and found != () else json.loads(json.dumps(found, default=sorted))
    return value
