"""Tables as rows: CSV, TSV, JSONL and Parquet, by the file's ending.

A TSV file is read as GLUE's are: a tab ends a field, quotation marks are text. A CSV file is quoted as RFC 4180 says;
its fields may be apart by something else than a comma (`DELIMITERS`), which its first line shows, or says: a
spreadsheet may write `sep=;` there, above the names of the columns.
"""

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet

from orchestrator.errors import TaskDataError
from orchestrator.storage.text_lines import HALF_A_PAIR, has_half_a_pair
from orchestrator.tasks.text_files import BadRecords, plain_name, read_decompressed, read_lines

TableRow = tuple[str, tuple[object, ...]]
"""Place of a record in its file, and the values of its wanted columns."""

DELIMITERS = (",", ";", "\t", "|")
"""Characters that may stand between the fields of a CSV file: spreadsheets write semicolons where 0,5 is a number."""

_DECLARATION = re.compile(r'"?sep=(.)"?')
TABLE_NAMES = {".csv": "CSV", ".tsv": "TSV", ".jsonl": "JSONL", ".ndjson": "JSONL", ".parquet": "Parquet"}
"""Name of each kind of table by the ending of its file."""


def table_name(path: str) -> str | None:
    """Name of the kind of table that a file is by its ending; None for a file of another kind."""
    plain = plain_name(path)
    return next((name for ending, name in TABLE_NAMES.items() if plain.endswith(ending)), None)


def read_rows(path: str, columns: tuple[str, ...], bad: BadRecords, header: bool = True) -> Iterator[TableRow]:
    """The wanted columns of each record. Raises: TaskDataError for a missing column or an unknown kind of file."""
    name = plain_name(path)
    if name.endswith(".tsv"):
        rows = ((f"line {number}", line.split("\t")) for number, line in read_lines(path, bad) if line)
        return _pick_columns(rows, path, columns, bad, header)
    if name.endswith(".csv"):
        return _pick_columns(_csv_rows(path, columns if header else (), bad), path, columns, bad, header)
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
    wanted = set(columns)
    first = _first_fields(path, read_decompressed(path), wanted if header else ())
    return wanted <= set(first if header else map(str, range(len(first))))


def _first_fields(path: str, data: bytes, columns: Iterable[str]) -> list[str]:
    """Fields of a table's first line; `columns` are names that are expected there, empty without a header."""
    lines = (line.decode("utf-8-sig", errors="replace").rstrip("\r") for line in data.split(b"\n", 2)[:2])
    if not plain_name(path).endswith(".csv"):
        return next(lines).split("\t")
    return csv_header(lines, columns).fields


def column_names(path: str, bad: BadRecords) -> tuple[str, ...]:
    """The columns of a table with a header; of JSONL the keys that every record has, in the first one's order.

    Raises: TaskDataError for an empty or broken file, or an unknown kind of file.
    """
    name = plain_name(path)
    if name.endswith((".tsv", ".csv")):
        lines = (line for _, line in read_lines(path, bad))
        return tuple(next(lines, "").split("\t") if name.endswith(".tsv") else csv_header(lines, None).fields)
    if name.endswith(".parquet"):
        return tuple(_open_parquet(path).schema_arrow.names)
    shared: dict[str, None] | None = None
    for _, record in _json_records(path, bad):
        if isinstance(record, dict):
            keys = record if shared is None else shared
            shared = {key: None for key in keys if key in record}
    return tuple(shared or ())


def fields_of(line: str) -> tuple[str, ...]:
    """Fields of a line of a table, whatever separates them; a line that is none has one."""
    return tuple(_csv_fields(line.rstrip("\r\n"), find_delimiter(line, None)))


def declared_delimiter(line: str) -> str | None:
    """The delimiter that the first line of a CSV file says, as Excel writes it; None for a line of the table.

    >>> declared_delimiter("sep=;"), declared_delimiter("text;label")
    (';', None)
    """
    found = _DECLARATION.fullmatch(line.strip("\r\n"))
    return found[1] if found else None


class CsvHeader(NamedTuple):
    """The first line of a CSV table, and how its lines are read."""

    line: str
    delimiter: str
    num_above: int
    """Lines above it: 1 where the file says its delimiter."""

    @property
    def fields(self) -> list[str]:
        """The names of the columns, where it names them."""
        return _csv_fields(self.line, self.delimiter)


def csv_header(lines: Iterator[str], columns: Iterable[str] | None) -> CsvHeader:
    """Take the first line of the table from a CSV file's lines.

    Args:
        columns: names that are expected in it; None where they are not known.
    """
    line = next(lines, "")
    delimiter = declared_delimiter(line)
    if delimiter is None:
        return CsvHeader(line, find_delimiter(line, columns), 0)
    return CsvHeader(next(lines, ""), delimiter, 1)


def find_delimiter(line: str, columns: Iterable[str] | None) -> str:
    """The delimiter of a CSV file by its first line: the first one that finds all of `columns`, else most fields.

    >>> find_delimiter("text;label", ("text", "label")), find_delimiter("a,b;c;d", ()), find_delimiter("a|b|c", None)
    (';', ',', '|')
    """
    wanted = None if columns is None else set(columns)
    for delimiter in DELIMITERS:
        if wanted is not None and wanted <= set(_csv_fields(line, delimiter)):
            return delimiter
    return max(DELIMITERS, key=lambda delimiter: len(_csv_fields(line, delimiter)))


def _csv_fields(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])


def _csv_rows(path: str, columns: Iterable[str], bad: BadRecords) -> Iterator[tuple[str, list[str]]]:
    lines = (line + "\n" for _, line in read_lines(path, bad))
    first, delimiter, num_above = csv_header(lines, columns)
    reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter, strict=True)
    while True:
        before = reader.line_num
        place = f"line {num_above + before + 1}"
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
        if plain_name(path).endswith(".tsv") and len(present) == 1 and any(mark in present[0] for mark in DELIMITERS):
            raise TaskDataError(
                f"{path} has no tab in its first line, {present[0][:80]!r}; if it is a table with commas or "
                "semicolons, let its name end in .csv"
            )
        raise TaskDataError(
            f"{path} has no column {missing[0]!r}, it has {', '.join(map(repr, present))}; "
            "name others with task.text_columns, task.label_column or the field that named it"
        )


def _jsonl_rows(path: str, columns: tuple[str, ...], bad: BadRecords) -> Iterator[TableRow]:
    for place, record in _json_records(path, bad):
        missing = [column for column in columns if not isinstance(record, dict) or column not in record]
        if missing:
            bad.found(place, f"no key {missing[0]!r}")
            continue
        values = tuple(record[column] for column in columns)
        if has_half_a_pair(values):
            bad.found(place, HALF_A_PAIR)
        else:
            yield place, values


def _json_records(path: str, bad: BadRecords) -> Iterator[tuple[str, Any]]:
    for number, line in read_lines(path, bad):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            bad.found(place, f"not JSON: {error.msg} at column {error.colno}")
            continue
        yield place, record


def _open_parquet(path: str) -> pyarrow.parquet.ParquetFile:
    try:
        return pyarrow.parquet.ParquetFile(io.BytesIO(read_decompressed(path)))
    except (pyarrow.ArrowException, OSError) as error:
        raise TaskDataError(f"{path} is not a whole Parquet file: {error}; write it again") from error


def _parquet_rows(path: str, columns: tuple[str, ...]) -> Iterator[TableRow]:
    file = _open_parquet(path)
    _check_columns(path, columns, file.schema_arrow.names)
    try:
        table = file.read(columns=list(columns))
    except (pyarrow.ArrowException, OSError) as error:
        raise TaskDataError(f"{path} is not a whole Parquet file: {error}; write it again") from error
    values = [table.column(column).to_pylist() for column in columns]
    for number, row in enumerate(zip(*values, strict=True), start=1):
        yield f"row {number}", row
