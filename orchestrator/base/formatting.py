"""Cells of tables: a value as a short text for people, and as a plain value for JSON and CSV."""

import json
import math
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

MISSING = "–"
"""Text of a cell without a value."""
_SETTINGS = ("params.", "spec.")
"""Beginnings of the names of settings, but for those of a recipe."""
_OF_HUB = r"^hf://|(?<=@[0-9a-f]{4})[0-9a-f]{36}$"


def printable(text: str, *, keep_lines: bool = True) -> str:
    """Replace control characters, so that no data can send commands to a terminal."""
    kept = "\n\t" if keep_lines else ""
    return "".join(
        c if c in kept or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co") else " " if c in "\n\r\t" else "�"
        for c in text
    )


def cell(value: Any) -> str:
    """Text of a value in a table: short numbers, times to the minute, `nan`, a dash for an empty one."""
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if value is None or value in ("", [], {}):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value, _decimals([value]) if math.isfinite(value) else None)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}" if value == value else MISSING  # NaT is not equal to itself
    plain = plain_value(value)
    text = ", ".join(map(str, plain)) if isinstance(plain, list) else plain
    return printable(json.dumps(text, ensure_ascii=False) if isinstance(text, dict) else str(text), keep_lines=False)


def is_setting(name: str) -> bool:
    """Whether a field or measurement of that name is a value that was chosen, not measured.

    >>> [is_setting(name) for name in ("params.epochs", "recipe.size", "train.learning_rate", "metrics.f1")]
    [True, True, True, False]
    """
    return name.startswith(_SETTINGS) or ".recipe." in f".{name}" or name.rpartition(".")[2] == "learning_rate"


def setting_cell(value: Any) -> str:
    """Text of a setting as it would be typed: the shortest that is read as the same number.

    >>> setting_cell(0.00125), setting_cell(4.0), setting_cell(1.234e-5), setting_cell(0.1 + 0.2)
    ('0.00125', '4', '1.234e-05', '0.30000000000000004')
    """
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value == int(value) and abs(value) < 1e15 else float.__repr__(value)
    return cell(value)


def field_cell(name: str, value: Any) -> str:
    """Text of a field's value: of a setting as it was chosen, of anything else as of a measurement."""
    return setting_cell(value) if name.startswith(_SETTINGS) else column_cells([value], name)[0]


def column_cells(values: list[Any], name: str = "") -> list[str]:
    """Texts of a column's values; all its fractions have the same number of decimals, unless they are settings.

    Settings that were drawn or computed have six digits, where these tell as many of them apart.

    >>> column_cells([0.1 + 0.2, 1 / 6e4], "params.learning_rate"), column_cells([0.3, 0.1 + 0.2], "params.dropout")
    (['0.3', '1.66667e-05'], ['0.3', '0.30000000000000004'])
    >>> column_cells([-0.08, 0.000849]), column_cells([3e-7, 0.5]), column_cells([0.0004, 3600.5])
    (['-0.08000', '0.00085'], ['3e-07', '0.5'], ['0.0004', '3600.5000'])
    """
    if is_setting(name):
        exact = [setting_cell(value) for value in values]
        short = [setting_cell(float(f"{v:.6g}")) if isinstance(v, float) else cell(v) for v in values]
        return short if len(set(short)) == len(set(exact)) else exact
    fractions = [value for value in values if isinstance(value, float) and math.isfinite(value)]
    decimals = _decimals(fractions)
    return [
        _number(value, decimals) if isinstance(value, float) and math.isfinite(value) else cell(value)
        for value in values
    ]


def _decimals(values: list[float]) -> int | None:
    """Number of decimals that suits all of some numbers; None: too large or too small for a fixed number of them."""
    sizes = [abs(value) for value in values if value]
    if all(value == int(value) and abs(value) < 1e15 for value in values):
        return 0
    least, most = min(sizes), max(sizes)
    if most >= 10:
        decimals = next((each for each in (1 if most >= 100 else 2, 3, 4) if least >= 10.0**-each), None)
        return None if most >= 1e6 else decimals
    if least < 1e-3:
        return None if most < 1e-3 or least < 1e-5 else 6 if least < 1e-4 else 5
    return 4


def _number(value: float, decimals: int | None) -> str:
    return f"{value:.3g}" if decimals is None else f"{value:.{decimals}f}"


def plain_value(value: Any, *, is_drawn: bool = False) -> Any:
    """Value that JSON can hold: ISO 8601 in UTC for times, the texts NaN, Infinity and -Infinity, which pandas reads.

    Args:
        is_drawn: whether it is for a chart, which leaves a gap at null in place of such a number.

    >>> plain_value([0.5, float("nan"), float("-inf")])
    [0.5, 'NaN', '-Infinity']
    """
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None if is_drawn else json.dumps(float(value))
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds") if value == value else None  # NaT is not equal to itself
    if isinstance(value, date | Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain_value(item, is_drawn=is_drawn) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item, is_drawn=is_drawn) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return plain_value(value.item(), is_drawn=is_drawn) if hasattr(value, "item") else str(value)


def heading(column: str) -> str:
    """Heading of a column: its name without the prefixes and suffixes that the values make plain."""
    return column.removeprefix("metrics.").removeprefix("params.").removesuffix("_at")


def short_value(value: object, longest: int = 20) -> str:
    """Text of a parameter's value for a table or a legend; of a long one, as a folder's path, the end.

    >>> short_value(0.00003), short_value("/data/models/small/snapshots/step-00000000")
    ('3e-05', '…shots/step-00000000')
    >>> short_value("hf://org/tiny@d91b4ce7fa171bfa110e05de7d41591624e630c6")  # the commit's first digits
    'org/tiny@d91b'
    """
    text = f"{value:g}" if isinstance(value, float) else re.sub(_OF_HUB, "", str(value))
    return text if len(text) <= longest else f"…{text[1 - longest :]}"


def short_values(values: Iterable[object]) -> list[str]:
    """Short texts of the values of one parameter, or whole ones where short ones would make different values alike."""
    whole = [short_value(value, sys.maxsize) for value in values]
    short = list(map(short_value, whole))
    return short if len(set(short)) == len(set(whole)) else whole
