"""Output of commands: data goes to stdout or a file, as a table, JSON or CSV; messages for a person go to stderr."""

import csv
import io
import json
import math
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.progress import is_terminal, reader_may_leave, show_progress

if TYPE_CHECKING:
    from rich.text import Text

Row = Mapping[str, Any]
MISSING = "–"
_MIN_FOLDED_WIDTH = 17
"""Width in characters from which a column of a terminal's table may be folded; narrower ones stay on one line."""


def show_rows(
    rows: Iterable[Row],
    columns: Sequence[str],
    form: str | None,
    output: str | None,
    *,
    empty: str = "",
    spare: Sequence[str] = (),
) -> None:
    """Show rows as a table, JSON or CSV.

    Args:
        form: `table`, `json` or `csv`; None: what the ending of `output` says, else a table.
        output: file to write to; None: stdout.
        empty: message on stderr in place of a table without rows.
        spare: columns that are left out, from the first one on, while the terminal is too narrow for the table.
    """
    listed = [{column: row.get(column) for column in columns} for row in rows]
    form = chosen_form(form, output)
    if form == "json":
        _write(json.dumps([_plain(row) for row in listed], indent=2, ensure_ascii=False) + "\n", output)
    elif form == "csv":
        _write(_as_csv(listed, columns), output)
    elif listed:
        _write_table(listed, columns, output, spare)
    elif empty:
        notify(empty)


def show_record(record: Row, form: str | None, output: str | None) -> None:
    """Show one record: as a table one field per line, without empty ones; as JSON an object with all of them."""
    form = chosen_form(form, output)
    if form == "json":
        _write(json.dumps(_plain(record), indent=2, ensure_ascii=False) + "\n", output)
    elif form == "csv":
        _write(_as_csv([{"field": key, "value": value} for key, value in record.items()], ["field", "value"]), output)
    else:
        cells = {key: cell(value) for key, value in record.items()}
        width = max((len(key) for key in cells), default=0)
        _write("".join(f"{key:<{width}}  {text}\n" for key, text in cells.items() if text != MISSING), output)


def show_text(text: str, output: str | None = None) -> None:
    """Write text as it is, to stdout or a file."""
    _write(text if text.endswith("\n") or not text else text + "\n", output)


def show_lines(lines: Iterable["Text"], output: str | None = None) -> None:
    """Show lines with their styles on a terminal, and as plain text in a pipe or a file."""
    if output is None and is_terminal(sys.stdout):
        from rich.console import Console

        console = Console(file=sys.stdout)
        for line in lines:
            console.print(line, soft_wrap=True)
    else:
        _write("".join(f"{line.plain}\n" for line in lines), output)


def chosen_form(form: str | None, output: str | None) -> str:
    """The form of what is shown: as given, or what the ending of `output` says, else `table`."""
    ending = Path(output).suffix.lstrip(".") if output else ""
    return form or (ending if ending in ("json", "csv") else "table")


def notify(message: str) -> None:
    """Write a message for a person to stderr, if somebody still reads it."""
    write_message(printable(message) + "\n")


def write_message(text: str) -> None:
    """Write text to stderr as it is, if somebody still reads it."""
    with reader_may_leave(sys.stderr):
        click.echo(text, nl=False, err=True)


def printable(text: str, *, keep_lines: bool = True) -> str:
    """Replace control characters, so that no data can send commands to a terminal."""
    kept = "\n\t" if keep_lines else ""
    return "".join(
        c if c in kept or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co") else " " if c in "\n\r\t" else "�"
        for c in text
    )


def cell(value: Any) -> str:
    """Text of a value in a table: short numbers, times to the minute, a dash for an empty one."""
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if value is None or value in ("", [], {}) or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value, _decimals([value]) if math.isfinite(value) else None)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}" if value == value else MISSING  # NaT is not equal to itself
    plain = _plain(value)
    text = ", ".join(map(str, plain)) if isinstance(plain, list) else plain
    return printable(json.dumps(text, ensure_ascii=False) if isinstance(text, dict) else str(text), keep_lines=False)


def _column(values: list[Any]) -> list[str]:
    """Texts of a column's values; all its fractions have the same number of decimals."""
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
    if min(sizes) < 1e-3 or max(sizes) >= 1e6:
        return None
    return 1 if max(sizes) >= 100 else 2 if max(sizes) >= 10 else 4


def _number(value: float, decimals: int | None) -> str:
    return f"{value:.3g}" if decimals is None else f"{value:.{decimals}f}"


def _plain(value: Any) -> Any:
    """Value that JSON can hold: null for NaN and infinities, ISO 8601 in UTC for times."""
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


def _as_csv(rows: Sequence[Row], columns: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        plain = {key: _plain(value) for key, value in row.items()}
        writer.writerow({key: json.dumps(v) if isinstance(v, list | dict) else v for key, v in plain.items()})
    return text.getvalue()


def _write_table(rows: list[dict[str, Any]], columns: Sequence[str], output: str | None, spare: Sequence[str]) -> None:
    """Write a table: on a terminal by rich, which folds it to the width; in files and pipes one line per row.

    The lines for files and pipes are padded here, since rich needs about a second for a thousand rows.
    """
    from rich.cells import cell_len

    cells = {column: [_heading(column), *_column([row[column] for row in rows])] for column in columns}
    right = {column for column in columns if all(isinstance(row[column], int | float | None) for row in rows)}
    widths = {column: max(map(cell_len, texts)) for column, texts in cells.items()}
    if output is None and is_terminal(sys.stdout):
        for column in spare:
            if sum(widths[name] + 2 for name in cells) > shutil.get_terminal_size().columns + 2:
                cells.pop(column, None)
        _print_rich(cells, right, widths)
        return
    lines = []
    for number in range(len(rows) + 1):
        padded = [
            " " * (widths[column] - cell_len(texts[number])) + texts[number]
            if column in right
            else texts[number] + " " * (widths[column] - cell_len(texts[number]))
            for column, texts in cells.items()
        ]
        lines.append("  ".join(padded).rstrip() + "\n")
    _write("".join(lines), output)


def _heading(column: str) -> str:
    """Heading of a column: its name without the prefixes and suffixes that the values make plain."""
    return column.removeprefix("metrics.").removeprefix("params.").removesuffix("_at")


def _print_rich(cells: dict[str, list[str]], right: set[str], widths: dict[str, int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column, (heading, *_) in cells.items():
        is_narrow = widths[column] < _MIN_FOLDED_WIDTH
        table.add_column(
            Text(heading), justify="right" if column in right else "left", overflow="fold", no_wrap=is_narrow
        )
    for line in zip(*(texts[1:] for texts in cells.values()), strict=True):
        table.add_row(*map(Text, line))
    Console(file=sys.stdout).print(table)


def _write(text: str, output: str | None) -> None:
    if output is None:
        click.echo(text, nl=False)
    else:
        write_output(output, text.encode())


def write_output(output: str, data: bytes) -> None:
    """Write the file that `-o` names, and say so."""
    write_file(output, data)
    notify(f"wrote {output}")


def write_file(output: str, data: bytes) -> None:
    """Write a file, whole or not at all; a link is followed, a device or a pipe gets the bytes."""
    from orchestrator.errors import InputError
    from orchestrator.storage import write_bytes
    from orchestrator.storage.uris import is_local, local_path

    path = local_path(output).resolve() if is_local(output) else None
    if path is not None and path.is_dir():
        raise InputError(f"{output} is a folder; name a file in it")
    if path is not None and path.exists() and not path.is_file():
        path.write_bytes(data)
    else:
        write_bytes(str(path or output), data)


def counted(number: int, noun: str) -> str:
    """Number and noun, in the plural unless it is one: `1 text`, `1,200 texts`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Function that replaces the status line of long work, on stderr."""
    with show_progress() as progress:
        yield progress.status
