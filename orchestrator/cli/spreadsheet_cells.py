"""Fields of CSV that a spreadsheet opens as text, whatever somebody has put into a name or an error message.

Spreadsheets carry out a field that begins with one of a few signs as a formula, which can run programs and send data
away (OWASP, CSV Injection). Such a field gets an apostrophe in front, which spreadsheets take for "this is text".
"""

import unicodedata
from typing import Any

_FORMULA_SIGNS = frozenset("=+-@\t\r＝＋－＠")


def safe_field(value: Any) -> Any:
    r"""A field without control characters and not to be taken for a formula; numbers stay as they are.

    >>> safe_field("=cmd|'/c calc'!A1"), safe_field("-0.5"), safe_field(-0.5), safe_field("a\x1b[31m\nb")
    ("'=cmd|'/c calc'!A1", '-0.5', -0.5, 'a�[31m\nb')
    """
    if not isinstance(value, str):
        return value
    text = "".join(c if c in "\r\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else "�" for c in value)
    is_formula = text.lstrip(" \n")[:1] in _FORMULA_SIGNS and not _is_number(text)
    return f"'{text}" if text and is_formula else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return not text[:1].isspace()
