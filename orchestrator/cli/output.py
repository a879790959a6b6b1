"""Data to stdout or a file as table, JSON or CSV; everything a person should merely know to stderr."""

import csv
import io
import json
import math
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

Row = Mapping[str, Any]
MISSING = "–"


def show_rows(
    rows: Iterable[Row], columns: Sequence[str], form: str | None, output: str | None, empty: str = ""
) -> None:
    """Rows as a table, JSON or CSV. `empty` is said on stderr when there are none and a person would see nothing."""
    listed = [{column: _plain(row.get(column)) for column in columns} for row in rows]
    form = _form(form, output)
    if form == "json":
        _write(json.dumps(listed, indent=2, ensure_ascii=False) + "\n", output)
    elif form == "csv":
        _write(_as_csv(listed, columns), output)
    elif listed:
        _write_table(listed, columns, output)
    if not listed and empty and form == "table":
        tell(empty)


def show_record(record: Row, form: str | None, output: str | None) -> None:
    """One record: a field a line as a table, an object as JSON."""
    form = _form(form, output)
    plain = {key: _plain(value) for key, value in record.items()}
    if form == "json":
        _write(json.dumps(plain, indent=2, ensure_ascii=False) + "\n", output)
    elif form == "csv":
        _write(_as_csv([{"field": key, "value": value} for key, value in plain.items()], ["field", "value"]), output)
    else:
        width = max((len(key) for key in plain), default=0)
        lines = (f"{key:<{width}}  {cell(value)}".rstrip() for key, value in plain.items())
        _write("".join(line + "\n" for line in lines), output)


def show_text(text: str, output: str | None = None) -> None:
    """Text as it is, to stdout or a file."""
    _write(text if text.endswith("\n") or not text else text + "\n", output)


def tell(message: str) -> None:
    """One line for a person, on stderr."""
    click.echo(printable(message), err=True)


def printable(text: str, *, keep_lines: bool = True) -> str:
    """`text` without control characters, so that no data can drive a terminal."""
    kept = "\n\t" if keep_lines else ""
    return "".join(
        c if c in kept or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co") else " " if c in "\n\r\t" else "�"
        for c in text
    )


def cell(value: Any) -> str:
    """A value as a table shows it: short numbers, and a dash for what is not there."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | dict):
        return printable(json.dumps(value, ensure_ascii=False), keep_lines=False)
    return printable(str(value), keep_lines=False)


def _number(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
    return f"{value:.3g}"


def _plain(value: Any) -> Any:
    """A JSON value: NaN and infinities are null, times are ISO 8601 in UTC."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds") if value == value else None  # NaT is not equal to itself
    if isinstance(value, date | Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return _plain(value.item()) if hasattr(value, "item") else str(value)


def _form(form: str | None, output: str | None) -> str:
    ending = Path(output).suffix.lstrip(".") if output else ""
    return form or (ending if ending in ("json", "csv") else "table")


def _as_csv(rows: list[dict[str, Any]], columns: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: json.dumps(v) if isinstance(v, list | dict) else v for key, v in row.items()})
    return text.getvalue()


def _write_table(rows: list[dict[str, Any]], columns: Sequence[str], output: str | None) -> None:
    cells = [[cell(row[column]) for column in columns] for row in rows]
    numeric = [all(isinstance(row[c], int | float | None) for row in rows) for c in columns]
    if output is None and sys.stdout.isatty():
        _print_rich(cells, columns, numeric)
        return
    from rich.cells import cell_len

    widths = [max(cell_len(line[i]) for line in [list(columns), *cells]) for i in range(len(columns))]
    lines = []
    for line in [list(columns), *cells]:
        padded = [
            " " * (width - cell_len(text)) + text if right else text + " " * (width - cell_len(text))
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        lines.append("  ".join(padded).rstrip() + "\n")
    _write("".join(lines), output)


def _print_rich(cells: list[list[str]], columns: Sequence[str], numeric: list[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column, right in zip(columns, numeric, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for line in cells:
        table.add_row(*(Text(text) for text in line))
    Console(file=sys.stdout).print(table)


def _write(text: str, output: str | None) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    from orchestrator.storage import write_bytes

    write_bytes(output, text.encode())
    tell(f"wrote {output}")
