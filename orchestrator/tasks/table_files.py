"""Tables as rows: CSV, TSV, JSONL and Parquet, by the file's ending.

A TSV file is read as GLUE's are: a tab ends a field, quotation marks are text. A CSV file is quoted as RFC 4180 says.
"""

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence

import pyarrow
import pyarrow.parquet

from orchestrator.errors import TaskDataError
from orchestrator.storage.text_lines import HALF_A_PAIR, has_half_a_pair
from orchestrator.tasks.text_files import BadRecords, plain_name, read_decompressed, read_lines

TableRow = tuple[str, tuple[object, ...]]
"""Place of a record in its file, and the values of its wanted columns."""


def read_rows(path: str, columns: tuple[str, ...], bad: BadRecords, header: bool = True) -> Iterator[TableRow]:
    """The wanted columns of each record. Raises: TaskDataError for a missing column or an unknown kind of file."""
    name = plain_name(path)
    if name.endswith(".tsv"):
        rows = ((f"line {number}", line.split("\t")) for number, line in read_lines(path, bad) if line)
        return _pick_columns(rows, path, columns, bad, header)
    if name.endswith(".csv"):
        return _pick_columns(_csv_rows(path, bad), path, columns, bad, header)
    if name.endswith((".jsonl", ".ndjson")):
        return _jsonl_rows(path, columns, bad)
    if name.endswith(".parquet"):
        return _parquet_rows(path, columns)
    raise TaskDataError(f"{path}: a table's name ends in .csv, .tsv, .jsonl or .parquet (before .gz, .xz, .zst)")


def read_plain_rows(path: str, columns: tuple[str, ...], bad: BadRecords) -> Iterator[TableRow]:
    """Each line of plain text as the wanted columns, in the order asked for, with tabs between them."""
    for number, line in read_lines(path, bad):
        fields = line.split("\t") if line.strip() else []
        if fields and len(fields) != len(columns):
            bad.found(f"line {number}", f"{len(fields)} texts with tabs between them; wanted: {', '.join(columns)}")
        elif fields:
            yield f"line {number}", tuple(fields)


def has_columns(path: str, columns: Iterable[str], header: bool) -> bool:
    """Whether the first line of a TSV or CSV file has all of `columns`."""
    line = read_decompressed(path).split(b"\n", 1)[0].decode(errors="replace").rstrip("\r")
    first = next(csv.reader([line])) if plain_name(path).endswith(".csv") else line.split("\t")
    return set(columns) <= set(first if header else map(str, range(len(first))))


def _csv_rows(path: str, bad: BadRecords) -> Iterator[tuple[str, list[str]]]:
    reader = csv.reader((line + "\n" for _, line in read_lines(path, bad)), strict=True)
    while True:
        before = reader.line_num
        place = f"line {before + 1}"
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):  # all that follows would be lost as one bad record
                raise TaskDataError(
                    f'{path}, {place}: a quotation mark opens here and none closes it; write a quote in a text as ""'
                ) from None
            bad.found(place, f"not CSV: {error}", num_lines=reader.line_num - before)
            continue
        if row:
            yield place, row


def _pick_columns(
    rows: Iterator[tuple[str, list[str]]], path: str, columns: tuple[str, ...], bad: BadRecords, header: bool
) -> Iterator[TableRow]:
    first = next(rows, None)
    if first is None:
        raise TaskDataError(f"{path} holds no line that can be read; fetch the file again")
    names = first[1] if header else [str(number) for number in range(len(first[1]))]
    _check_columns(path, columns, names)
    picked = [names.index(column) for column in columns]
    for place, row in rows if header else itertools.chain([first], rows):
        if len(row) != len(names):
            bad.found(place, f"{len(row)} fields where the first line has {len(names)}")
        else:
            yield place, tuple(row[index] for index in picked)


def _check_columns(path: str, wanted: Iterable[str], present: Sequence[str]) -> None:
    missing = [column for column in wanted if column not in present]
    if missing:
        raise TaskDataError(
            f"{path} has no column {missing[0]!r}, it has {', '.join(map(repr, present))}; "
            "name others with task.text_columns, task.label_column or the field that named it"
        )


def _jsonl_rows(path: str, columns: tuple[str, ...], bad: BadRecords) -> Iterator[TableRow]:
    for number, line in read_lines(path, bad):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            bad.found(place, f"not JSON: {error.msg} at column {error.colno}")
            continue
        missing = [column for column in columns if not isinstance(record, dict) or column not in record]
        if missing:
            bad.found(place, f"no key {missing[0]!r}")
            continue
        values = tuple(record[column] for column in columns)
        if has_half_a_pair(values):
            bad.found(place, HALF_A_PAIR)
        else:
            yield place, values


def _parquet_rows(path: str, columns: tuple[str, ...]) -> Iterator[TableRow]:
    try:
        file = pyarrow.parquet.ParquetFile(io.BytesIO(read_decompressed(path)))
        _check_columns(path, columns, file.schema_arrow.names)
        table = file.read(columns=list(columns))
    except (pyarrow.ArrowException, OSError) as error:
        raise TaskDataError(f"{path} is not a whole Parquet file: {error}; write it again") from error
    values = [table.column(column).to_pylist() for column in columns]
    for number, row in enumerate(zip(*values, strict=True), start=1):
        yield f"row {number}", row
