"""Tables as rows: CSV, TSV, JSONL and Parquet, by the file's ending.

A TSV file is read as GLUE's are: a tab ends a field, quotation marks are text. A CSV file is quoted (`csv_tables.py`).
"""

import ast
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow
import pyarrow.parquet

from orchestrator.errors import TaskDataError
from orchestrator.storage.text_lines import HALF_A_PAIR, has_half_a_pair, json_problem
from orchestrator.tasks.csv_tables import DELIMITERS, csv_rows
from orchestrator.tasks.text_files import BadRecords, plain_name, read_decompressed, read_lines

TableRow = tuple[str, tuple[object, ...]]
"""Place of a record in its file, and the values of its wanted columns."""

_ARRAY = re.compile(r"array\((\[.*?\])(?:, dtype=\w+)?\)", re.DOTALL)
"""NumPy's arrays as pandas writes them into a CSV file."""
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
        return _pick_columns(csv_rows(path, columns if header else (), bad), path, columns, bad, header)
    if name.endswith((".jsonl", ".ndjson")):
        return _jsonl_rows(path, columns, bad)
    if name.endswith(".parquet"):
        return _parquet_rows(path, columns)
    raise TaskDataError(f"{path}: a table's name ends in .csv, .tsv, .jsonl or .parquet (before .gz, .xz, .zst)")


def read_records(path: str, bad: BadRecords) -> Iterator[tuple[str, Any]]:
    """Place and values of each record, by the names of its columns. Raises: TaskDataError."""
    if not plain_name(path).endswith((".csv", ".tsv", ".parquet")):
        return _json_records(path, bad)
    names = column_names(path, bad)
    return ((place, dict(zip(names, row, strict=True))) for place, row in read_rows(path, names, bad))


def unpack_cell(value: object) -> Any:
    """The list or object that a cell of a table holds as text, in JSON or as Python prints it; others as they are."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        for parse in (json.loads, lambda text: ast.literal_eval(_ARRAY.sub(r"\1", text))):
            try:
                return parse(value)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    return value


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
    first = _first_fields(path, wanted if header else (), BadRecords(path, "skip"))
    return wanted <= set(first if header else map(str, range(len(first))))


def _first_fields(path: str, columns: Iterable[str] | None, bad: BadRecords) -> Sequence[str]:
    """Fields of the first line with any; `columns` are names that are expected there, empty without a header."""
    if plain_name(path).endswith(".csv"):
        return next((row for _, row in csv_rows(path, columns, bad)), ())
    return next((line for _, line in read_lines(path, bad) if line), "").split("\t")


def column_names(path: str, bad: BadRecords) -> tuple[str, ...]:
    """The columns of a table with a header; of JSONL the keys that every record has, in the first one's order.

    Raises: TaskDataError for an empty or broken file, or an unknown kind of file.
    """
    name = plain_name(path)
    if name.endswith((".tsv", ".csv")):
        names = tuple(_first_fields(path, None, bad))
        if bad.count:
            raise _names_are_broken(bad)
        return names
    if name.endswith(".parquet"):
        return tuple(_open_parquet(path).schema_arrow.names)
    shared: dict[str, None] | None = None
    for _, record in _json_records(path, bad):
        if isinstance(record, dict):
            keys = record if shared is None else shared
            shared = {key: None for key in keys if key in record}
    return tuple(shared or ())


def _pick_columns(
    rows: Iterator[tuple[str, list[str]]], path: str, columns: tuple[str, ...], bad: BadRecords, header: bool
) -> Iterator[TableRow]:
    count = bad.count
    first = next(rows, None)
    if header and bad.count > count:
        raise _names_are_broken(bad)
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


def _names_are_broken(bad: BadRecords) -> TaskDataError:
    """The error of a table whose next line would be taken for the names of its columns."""
    return TaskDataError(f"{bad.path}, {bad.first_problem}; the columns' names stand there and cannot be left out")


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
            bad.found(place, f"not JSON: {json_problem(error)}")
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
