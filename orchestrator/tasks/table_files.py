"""Tables as rows: CSV, TSV, JSON and Parquet, by the file's ending.

A TSV file is read as GLUE's are: a tab ends a field, quotation marks are text. A CSV file is quoted (`csv_tables.py`),
and so is a TSV file whose quotation marks all enclose cells. A file of JSON has an object for each record: on a line,
over several, or in one array. A column within an object goes by both names: `data.text`.
"""

import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow
import pyarrow.parquet

from orchestrator.base.errors import TaskDataError
from orchestrator.storage.text_lines import HALF_A_PAIR, has_half_a_pair, json_problem
from orchestrator.tasks.csv_tables import DELIMITERS, csv_rows, is_quoted_tsv
from orchestrator.tasks.text_files import BadRecords, plain_name, read_decompressed, read_lines

TableRow = tuple[str, tuple[object, ...]]
"""Place of a record in its file, and the values of its wanted columns."""

JSON_ENDINGS = (".jsonl", ".ndjson", ".json")

TABLE_NAMES = {".csv": "CSV", ".tsv": "TSV", ".jsonl": "JSONL", ".ndjson": "JSONL", ".parquet": "Parquet"}
"""Name of each kind of table by the ending of its file."""


def table_name(path: str) -> str | None:
    """Name of the kind of table that a file is by its ending; None for a file of another kind."""
    plain = plain_name(path)
    return next((name for ending, name in TABLE_NAMES.items() if plain.endswith(ending)), None)


def is_json_table(path: str) -> bool:
    """Whether a file of JSON, of whatever name, has several records: one object alone is of another layout."""
    records = [record for _, record in itertools.islice(_json_records(path, BadRecords(path, "skip")), 2)]
    return len(records) == 2 and all(isinstance(record, dict) for record in records)


def read_rows(
    path: str,
    columns: tuple[str, ...],
    bad: BadRecords,
    header: bool = True,
    may_lack: Collection[str] = (),
    may_quote: bool = True,
) -> Iterator[TableRow]:
    """The wanted columns of each record.

    Args:
        may_lack: columns that some records of JSON may be without; their value is None there.
        may_quote: whether a TSV file may have quoted cells.

    Raises: TaskDataError for a missing column or an unknown kind of file.
    """
    name = plain_name(path)
    if name.endswith(JSON_ENDINGS):
        return _json_rows(path, columns, bad, may_lack)
    if name.endswith(".parquet"):
        return _parquet_rows(path, columns)
    if name.endswith((".csv", ".tsv")):
        rows = _flat_rows(path, columns if header else (), bad, may_quote)
        return _pick_columns(rows, path, columns, bad, header)
    raise TaskDataError(f"{path}: a table's name ends in .csv, .tsv, .jsonl, .json or .parquet (before .gz, .xz, .zst)")


def _flat_rows(
    path: str, columns: Iterable[str] | None, bad: BadRecords, may_quote: bool = True
) -> Iterator[tuple[str, list[str]]]:
    """Each row of a CSV or TSV file with its place, its header among them."""
    if plain_name(path).endswith(".csv"):
        return csv_rows(path, columns, bad)
    if may_quote and is_quoted_tsv(path):
        return csv_rows(path, columns, bad, "\t")
    return ((f"line {number}", line.split("\t")) for number, line in read_lines(path, bad) if line)


def read_records(path: str, bad: BadRecords) -> Iterator[tuple[str, Any]]:
    """Place and values of each record, by the names of its columns. Raises: TaskDataError."""
    if not plain_name(path).endswith((".csv", ".tsv", ".parquet")):
        return _json_records(path, bad)
    names = column_names(path, bad)
    return ((place, dict(zip(names, row, strict=True))) for place, row in read_rows(path, names, bad))


def read_plain_rows(path: str, columns: tuple[str, ...], bad: BadRecords) -> Iterator[TableRow]:
    """Each line of plain text as the wanted columns, in the order asked for, with tabs between them."""
    for number, line in read_lines(path, bad):
        fields = line.split("\t") if line.strip() else []
        if fields and len(fields) != len(columns):
            bad.found(f"line {number}", f"{len(fields)} texts with tabs between them; wanted: {', '.join(columns)}")
        elif fields:
            yield f"line {number}", tuple(fields)


def column_names(path: str, bad: BadRecords, *, within: bool = True, share: float = 0.5) -> tuple[str, ...]:
    """The columns of a table with a header; of JSON the keys that this share of the records has, or more.

    Args:
        within: whether the values of an object follow it: `data`, `data.text`.

    Raises: TaskDataError for an empty or broken file, or an unknown kind of file.
    """
    name = plain_name(path)
    if name.endswith((".tsv", ".csv")):
        _, names = next(_flat_rows(path, None, bad), ("", []))
        if bad.count:
            raise _names_are_broken(bad)
        return tuple(names)
    if name.endswith(".parquet"):
        schema = _open_parquet(path).schema_arrow
        return tuple(_field_names(schema) if within else schema.names)
    counts: Counter[str] = Counter()
    num_records = 0
    for _, record in _json_records(path, bad):
        if isinstance(record, dict):
            counts.update(list(dict.fromkeys(_keys(record) if within else record)))
        num_records += 1
    return tuple(key for key, count in counts.items() if count >= share * num_records)


def class_names(path: str, column: str) -> tuple[str, ...]:
    """Names of a column's numbers, as `datasets` keeps them in the Parquet files that it writes; none elsewhere."""
    if not plain_name(path).endswith(".parquet"):
        return ()
    metadata = _open_parquet(path).schema_arrow.metadata or {}
    try:
        feature = json.loads(metadata[b"huggingface"])["info"]["features"][column]
        while "names" not in feature:
            feature = feature[0] if isinstance(feature, list) else feature["feature"]
        return tuple(map(str, feature["names"]))
    except (KeyError, IndexError, TypeError, ValueError):  # a column of another kind, or metadata of another tool
        return ()


_QUOTES = (
    "; a cell of CSV is held together by double quotes, not single quotes, and without a blank before them; a TSV with "
    "other quotes can be saved as .csv or JSONL"
)


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
            is_quoted = any(field.lstrip().startswith(("'", '"')) for field in row)
            bad.found(place, f"{len(row)} fields where the first line has {len(names)}{_QUOTES if is_quoted else ''}")
        else:
            yield place, tuple(row[index] for index in picked)


def _names_are_broken(bad: BadRecords) -> TaskDataError:
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


_ABSENT = object()
"""Stands for the value of a key that a record has not."""


def _json_rows(path: str, columns: tuple[str, ...], bad: BadRecords, may_lack: Collection[str]) -> Iterator[TableRow]:
    never_there, record = set(may_lack), None
    for place, record in _json_records(path, bad):
        row = [_value_of(record, column, _ABSENT) for column in columns]
        missing = [column for column, value in zip(columns, row, strict=True) if value is _ABSENT]
        never_there &= set(missing)
        needed = next((column for column in missing if column not in may_lack), None)
        values = tuple(None if value is _ABSENT else value for value in row)
        if needed is not None:
            bad.found(place, f"no key {needed!r}; it has {', '.join(_keys(record))[:200] or 'none'}")
        elif has_half_a_pair(values):
            bad.found(place, HALF_A_PAIR)
        else:
            yield place, values
    if record is not None:
        _check_columns(path, sorted(never_there), tuple(_keys(record)))


def _value_of(record: object, column: str, default: object) -> object:
    """The value of a key, or within an object of a key (`data.text`); `default` where there is none."""
    if not isinstance(record, dict):
        return default
    if column in record:
        return record[column]
    first, dot, rest = column.partition(".")
    return _value_of(record.get(first), rest, default) if dot else default


def _keys(record: object) -> Iterator[str]:
    """The names of a record's values, those within an object after it."""
    for key, value in record.items() if isinstance(record, dict) else ():
        yield key
        yield from (f"{key}.{inner}" for inner in _keys(value))


def _json_records(path: str, bad: BadRecords) -> Iterator[tuple[str, Any]]:
    """Each record with its place; a file of lines is read line by line."""
    lines = ((number, line) for number, line in read_lines(path, bad) if line.strip())
    first = list(itertools.islice(lines, 2))
    value = _object_of(first[0][1]) if first else {}
    if value is None or (len(first) == 1 and _rows_within(value)):
        first += lines
        records = _whole_records(path, first)
        if records is not None:
            yield from ((f"record {number}", record) for number, record in enumerate(records, start=1))
            return
    for number, line in itertools.chain(first, lines):
        place = f"line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            bad.found(place, f"not JSON: {json_problem(error)}")
            continue
        yield place, record


def _object_of(line: str) -> dict[str, Any] | None:
    with suppress(ValueError, RecursionError):
        return value if isinstance(value := json.loads(line), dict) else None
    return None


def _rows_within(value: object) -> list[Any] | None:
    """The rows that an object has under `data`, as exports write them, or by columns (pandas); None of SQuAD's."""
    if not isinstance(value, dict):
        return None
    rows, names = value.get("data"), value.get("columns")
    if isinstance(rows, list) and isinstance(names, list) and all(isinstance(row, list) for row in rows):
        return [dict(zip(names, row, strict=False)) for row in rows]  # pandas' orient="split"
    are_columns = all(isinstance(cells, dict) and cells and all(map(str.isdecimal, cells)) for cells in value.values())
    if are_columns and len({tuple(cells) for cells in value.values()}) == 1:  # orient="columns", its default
        return [dict(zip(value, row, strict=True)) for row in zip(*map(dict.values, value.values()), strict=True)]
    are_rows = isinstance(rows, list) and all(isinstance(row, dict) and "paragraphs" not in row for row in rows)
    return rows if are_rows else None


_GAP = re.compile(r"[\s,]*")


def _whole_records(path: str, lines: Sequence[tuple[int, str]]) -> list[Any] | None:
    """The items of an array, objects over several lines or the rows of one; None where lines are no such thing.

    Raises: TaskDataError for one that is broken.
    """
    text = "\n".join(line for _, line in lines).strip()
    records: list[Any] = []
    end = 0
    try:
        while end < len(text):
            gap = _GAP.match(text, end)
            value, end = json.JSONDecoder().raw_decode(text, gap.end() if gap else end)
            records += value if isinstance(value, list) else [value]
    except (ValueError, RecursionError) as error:
        if lines[0][1].strip() == "{" or (text[0] == "[" and plain_name(path).endswith(JSON_ENDINGS)):
            place = f"line {lines[error.lineno - 1 if isinstance(error, json.JSONDecodeError) else 0][0]}"
            raise TaskDataError(f"{path}, {place}: not JSON: {json_problem(error)}; correct it") from None
        return None
    return (_rows_within(records[0]) if len(records) == 1 else None) or records


def _open_parquet(path: str) -> pyarrow.parquet.ParquetFile:
    try:
        return pyarrow.parquet.ParquetFile(io.BytesIO(read_decompressed(path)))
    except (pyarrow.ArrowException, OSError) as error:
        raise TaskDataError(f"{path} is not a whole Parquet file: {error}; write it again") from error


def _field_names(fields: Iterable[pyarrow.Field], above: str = "") -> Iterator[str]:
    """The names of a schema's columns, those within an object after it."""
    for field in fields:
        yield above + field.name
        if pyarrow.types.is_struct(field.type):
            yield from _field_names(field.type.fields, f"{above}{field.name}.")


def _parquet_rows(path: str, columns: tuple[str, ...]) -> Iterator[TableRow]:
    file = _open_parquet(path)
    _check_columns(path, columns, tuple(_field_names(file.schema_arrow)))
    whole = [column if column in file.schema_arrow.names else column.partition(".")[0] for column in columns]
    try:
        table = file.read(columns=list(dict.fromkeys(whole)))
        texts = [
            field.with_type(pyarrow.string()) if pyarrow.types.is_binary(field.type) else field
            for field in table.schema
        ]
        records = table.cast(pyarrow.schema(texts)).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise TaskDataError(f"{path} is not a whole Parquet file: {error}; write it again") from error
    for number, record in enumerate(records, start=1):
        yield f"row {number}", tuple(_value_of(record, column, None) for column in columns)
