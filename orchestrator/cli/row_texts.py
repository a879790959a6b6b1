"""Rows as texts: the columns of a table for a person, and CSV for a program."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.cells import column_cells, heading, plain_value
from orchestrator.progress.tables import Column

Row = Mapping[str, Any]
_MEASURED = frozenset({"value", "score", "mean", "sd", "low", "high", "median", "worst", "best", "best of n"})
_MEASURED |= {"baseline", "test"}
"""Columns with values of what a row measures."""


_FORMULA_SIGNS = frozenset("=+-@\t\r＝＋－＠")
"""First characters that make a formula of a field, which can run programs and send data away (OWASP, CSV Injection)."""


def csv_text(rows: Sequence[Row], columns: Sequence[str], *, raw: bool = False) -> str:
    """Rows as CSV, the names of the columns first; lists and mappings in a field are JSON.

    Args:
        raw: whether texts that a spreadsheet would take for formulas stay as they are.
    """
    from orchestrator.storage.text_lines import csv_lines  # a table needs none

    plain = ([plain_value(row.get(column)) for column in columns] for row in rows)
    fields = [[json.dumps(v) if isinstance(v, list | dict) else v for v in values] for values in plain]
    lines = [list(columns), *fields]
    if not raw:
        lines = [[safe_field(value) for value in line] for line in lines]
    return "".join(csv_lines(lines))


def table_columns(
    rows: Sequence[Row],
    columns: Sequence[str],
    measurements: Sequence[str | None],
    longest: int | None = None,
) -> list[Column]:
    """Columns of a table, each with its heading and a text for each row.

    Args:
        measurements: name of what the scores and values of each row measure; None of a row without any.
        longest: characters that a text may have; None for any number.
    """
    return [
        Column(
            name=column,
            texts=(
                heading(column),
                *(shortened(text, longest) for text in _texts(rows, column, measurements)),
            ),
            is_number=all(isinstance(row[column], int | float | None) for row in rows),
        )
        for column in columns
    ]


def shortened(text: str, longest: int | None) -> str:
    """Text that is not so long that it makes a table of no use; JSON, CSV and `--wide` have all of it."""
    return text if longest is None or len(text) <= longest else f"{text[: longest // 2]}…{text[1 - longest // 2 :]}"


def _texts(rows: Sequence[Row], column: str, measurements: Sequence[str | None]) -> list[str]:
    """Texts of a column; of scores those of each measurement by themselves, for a perplexity of 50 has few decimals."""
    if column not in _MEASURED:
        return column_cells([row[column] for row in rows], column)
    texts = [""] * len(rows)
    for name in dict.fromkeys(measurements):
        places = [place for place, other in enumerate(measurements) if other == name]
        found = column_cells([rows[place][column] for place in places], name or column)
        for place, text in zip(places, found, strict=True):
            texts[place] = text
    return texts


def safe_field(value: Any) -> Any:
    r"""A field without control characters, an apostrophe before what a spreadsheet would take for a formula.

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
