"""Output of commands: data goes to stdout or a file, as a table, JSON or CSV; messages are in `messages`."""

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.base.console import is_terminal
from orchestrator.base.formatting import column_cells, field_cell, heading, plain_value
from orchestrator.cli.messages import make_room, notify
from orchestrator.cli.reading import check_output, current_reading, find_columns, is_stream, output_path

if TYPE_CHECKING:
    from orchestrator.base.console.tables import Column

Row = Mapping[str, Any]
PAGE = 30
"""Rows on a terminal; `--limit` gives more of them."""
_LONGEST_CELL, _LONGEST_FIELD = 500, 5_000
"""Characters of a text in a row of a table, and in the record of one thing; JSON, CSV and `--wide` have all of it."""
_MEASURED = frozenset(
    {"value", "score", "mean", "sd", "low", "high", "median", "worst", "best", "best of n", "baseline", "test"}
)
"""Columns with values of what a row measures."""
_FORMULA_SIGNS = frozenset("=+-@\t\r＝＋－＠")
"""First characters that make a formula of a field, which can run programs and send data away (OWASP, CSV Injection)."""


def show_rows(
    rows: Iterable[Row],
    columns: Sequence[str],
    *,
    empty: str = "",
    spare: Sequence[str] = (),
    below: Sequence[str] = (),
    page: int | None = None,
    total: int | None = None,
) -> None:
    """Show rows as the options of reading ask for, and how many there are beside them.

    Args:
        rows: a row's `metric` is what its scores and values measure, which have their own number of decimals.
        columns: columns to show; the rows may have more, which `--columns` can name.
        empty: message on stderr in place of a table without rows.
        spare: columns that are left out, from the first one on, while the terminal is too narrow for the table.
        below: columns that stand below each row where the terminal is too narrow for them beside the others.
        page: number of rows on a terminal unless `--limit` gives another; a pipe or a file gets all.
        total: number of rows that there are, where `rows` are the page that the options ask for; None: they are all.

    Raises: InputError for a column that there is not.
    """
    reading, rows = current_reading(), list(rows)
    if reading.columns:
        columns, spare = find_columns(reading.columns, rows, columns), ()
    if total is None:
        total, rows = len(rows), rows[reading.offset :][: page_size(page)]
    listed = [{column: row.get(column) for column in columns} for row in rows]
    if reading.form == "json":
        show_text(_json_text(listed), reading.output)
    elif reading.form == "csv":
        show_text(_csv_text(listed, columns), reading.output)
    elif listed:
        show_table(rows, columns, reading.output, spare, below)
    elif empty and not total:
        notify(empty)
    last = reading.offset + len(listed)
    if total and not listed:
        notify(f"there are {total:,}, and --offset {reading.offset} skips all of them")
    elif listed and last < total:
        more = f"the next ones: --offset {last}" if reading.offset else "all of them: --limit all"
        notify(f"{len(listed):,} of {total:,} are shown; {more}")


def page_size(page: int | None = PAGE) -> int | None:
    """Number of rows to show: that of `--limit`, else on a terminal `page`; None for all."""
    reading = current_reading()
    is_paged = reading.form == "table" and reading.output is None and is_terminal(sys.stdout)
    return reading.limit or (page if is_paged else None)


def show_record(record: Row) -> None:
    """Show one record: as a table one field per line, without empty ones; as JSON an object with all of them.

    Raises: InputError for a field that `--columns` names and that there is not.
    """
    reading = current_reading()
    if reading.columns:
        record = {name: record[name] for name in find_columns(reading.columns, [record], ())}
    if reading.form == "json":
        text = _json_text(record)
    elif reading.form == "csv":
        text = _csv_text([{"field": key, "value": value} for key, value in record.items()], ["field", "value"])
    else:
        from orchestrator.base.console.tables import record_lines

        texts = [(key, _shortened(field_cell(key, value), _LONGEST_FIELD)) for key, value in record.items()]
        text = "\n".join(record_lines(texts, _terminal_width(reading.output)))
    show_text(text, reading.output)


def show_text(text: str, output: str | None = None) -> None:
    """Write text, its last line whole, to stdout or a file."""
    text = text if text.endswith("\n") or not text else text + "\n"
    if output is None:
        make_room(sys.stdout)
        click.echo(text, nl=False)
    else:
        write_output(output, text.encode())


def show_table(
    rows: Sequence[Row],
    columns: Sequence[str],
    output: str | None = None,
    spare: Sequence[str] = (),
    below: Sequence[str] = (),
) -> None:
    text, left_out = table_text(rows, columns, output, spare, below)
    show_text(text, output)
    if left_out:
        notify(f"left out: {left_out.replace(',', ', ')}; --columns {left_out} shows these; --wide shows all")


def table_text(
    rows: Sequence[Row],
    columns: Sequence[str],
    output: str | None = None,
    spare: Sequence[str] = (),
    below: Sequence[str] = (),
) -> tuple[str, str]:
    """A table, fitted to a terminal's width, else one whole line per row; and the columns that it leaves out."""
    from orchestrator.base.console.tables import (
        fitting,
        folded_lines,
        full_width,
        lines_with_records,
        plain_lines,
        records,
    )

    width = _terminal_width(output)
    measured = [row.get("metric") for row in rows]
    all_columns = [_column(rows, name, measured if name in _MEASURED else [None] * len(rows)) for name in columns]
    under = [column for column in all_columns if column.name in below]
    shown, has_heading = all_columns, True
    if width is None or full_width(all_columns) <= width:
        lines = plain_lines(all_columns)
    elif under and (shown := fitting([c for c in all_columns if c not in under], width, spare, may_fold=False)):
        lines, shown = lines_with_records(shown, under, width), [*shown, *under]
    elif shown := fitting(all_columns, width, spare):
        lines = folded_lines(shown, width)
    else:  # a block of lines for each row, with nothing left out
        shown, has_heading = all_columns, False
        lines = [line for block in records(shown, width) for line in (*block, "")][:-1]
    if has_heading and output is None and is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb":
        lines[0] = click.style(lines[0], bold=True)
    return "\n".join(lines), ",".join(heading(column.name) for column in all_columns if column not in shown)


def _terminal_width(output: str | None) -> int | None:
    """Width of the terminal that is written to; None for a pipe, a file, or where everything is to be shown."""
    if output is not None or current_reading().wide or not is_terminal(sys.stdout):
        return None
    return shutil.get_terminal_size().columns


def _column(rows: Sequence[Row], name: str, measurements: Sequence[str | None]) -> "Column":
    """A column of a table. Values of each measurement have their own number of decimals: a perplexity of 50 has few."""
    from orchestrator.base.console.tables import Column

    values, texts = [row.get(name) for row in rows], [""] * len(rows)
    for measured in dict.fromkeys(measurements):
        places = [place for place, other in enumerate(measurements) if other == measured]
        found = column_cells([values[place] for place in places], measured or name)
        for place, text in zip(places, found, strict=True):
            texts[place] = _shortened(text, _LONGEST_CELL)
    is_number = all(isinstance(value, int | float | None) for value in values)
    return Column(name, (heading(name), *texts), is_number)


def _shortened(text: str, longest: int) -> str:
    """Text that is not so long that it makes a table of no use."""
    if len(text) <= longest or current_reading().wide:
        return text
    return f"{text[: longest // 2]}…{text[1 - longest // 2 :]}"


def _json_text(value: Any) -> str:
    return json.dumps(plain_value(value), indent=2, ensure_ascii=False)


def _csv_text(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Rows as CSV, the names of the columns first; lists and mappings in a field are JSON."""
    from orchestrator.storage.text_lines import csv_lines  # a table needs none

    plain = [[plain_value(row[column]) for column in columns] for row in rows]
    lines = [[*columns], *([json.dumps(v) if isinstance(v, list | dict) else v for v in line] for line in plain)]
    if not current_reading().raw:
        lines = [[safe_field(value) for value in line] for line in lines]
    return "".join(csv_lines(lines))


def safe_field(value: Any) -> Any:
    r"""A field without control characters, an apostrophe before what a spreadsheet would take for a formula.

    >>> safe_field("=cmd|'/c calc'!A1"), safe_field("-0.5"), safe_field(-0.5), safe_field("a\x1b[31m\nb")
    ("'=cmd|'/c calc'!A1", '-0.5', -0.5, 'a�[31m\nb')
    """
    if not isinstance(value, str):
        return value
    text = "".join(c if c in "\r\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else "�" for c in value)
    if not text or text.lstrip(" \n")[:1] not in _FORMULA_SIGNS:
        return text
    with suppress(ValueError):
        float(text)
        return f"'{text}" if text[0].isspace() else text
    return f"'{text}"


def write_output(output: str, data: bytes) -> None:
    write_file(output, data)
    notify(f"wrote {output}")


def write_file(output: str, data: bytes) -> None:
    """Write a file, whole or not at all; a link is followed. Raises: InputError."""
    from orchestrator.storage import write_bytes
    from orchestrator.storage.uris import is_local

    check_output(output)
    if is_local(output):
        write_pieces([data], output)
    else:
        write_bytes(output, data)


def write_pieces(pieces: Iterable[bytes], output: str | None) -> None:
    """Write pieces as they come, to stdout (None or "-"), a device or a pipe; to a file whole or not at all."""
    from bert_core.checkpoints.manifest import atomic_write

    def write(target: Path | str) -> None:
        with click.open_file(str(target), "wb") as file:
            for piece in pieces:
                if target == "-":
                    make_room(sys.stdout)
                file.write(piece)
                file.flush()

    path = None if output in (None, "-") else output_path(str(output))
    if path is None or is_stream(path):
        write(path or "-")
    else:
        atomic_write(path, write)
