"""Tables of examples: CSV, TSV, JSONL and Parquet, by the file's ending.

A TSV file is read as GLUE's are: a tab ends a field, quotation marks are text. A CSV file is quoted as RFC 4180 says.
"""

import csv
import io
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import pyarrow
import pyarrow.parquet

from orchestrator.errors import TaskDataError
from orchestrator.tasks.bio_tags import find_bad_tag, to_bio
from orchestrator.tasks.examples import ClassificationExample, NerExample, RegressionExample
from orchestrator.tasks.text_files import (
    HALF_A_PAIR,
    BadRecords,
    has_half_a_pair,
    plain_name,
    read_decompressed,
    read_lines,
)

Row = tuple[str, tuple[object, ...]]
"""Where a record stands, and its wanted columns."""


@dataclass(frozen=True)
class ClassificationTable:
    """Reads texts with a class."""

    text_columns: tuple[str, ...]
    label_column: str
    classes: Mapping[str, str] | None = None
    """Class name by the label in the file; None takes every label as it stands."""
    header: bool = True

    def read(self, path: str, bad: BadRecords) -> Iterator[ClassificationExample]:
        """The file's examples in order."""
        for number, (place, texts, value) in enumerate(_read_texts(self, path, bad)):
            label = _label_text(value)
            if self.classes is not None:
                if label not in self.classes:
                    bad.found(place, f"{self.label_column} {value!r} is none of the labels {', '.join(self.classes)}")
                    continue
                label = self.classes[label]
            yield ClassificationExample(str(number), texts[0], texts[1] if len(texts) > 1 else None, label)


@dataclass(frozen=True)
class RegressionTable:
    """Reads texts with a number."""

    text_columns: tuple[str, ...]
    label_column: str
    header: bool = True

    def read(self, path: str, bad: BadRecords) -> Iterator[RegressionExample]:
        """The file's examples in order."""
        for number, (place, texts, value) in enumerate(_read_texts(self, path, bad)):
            try:
                score = float(value)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                score = math.nan
            if not math.isfinite(score):
                bad.found(place, f"{self.label_column} {value!r} is not a number")
                continue
            yield RegressionExample(str(number), texts[0], texts[1] if len(texts) > 1 else None, score)


@dataclass(frozen=True)
class NerTable:
    """Reads sentences whose words and tags are lists (JSONL, Parquet)."""

    tokens_column: str
    tags_column: str
    tags: tuple[str, ...] | None = None
    """The tag set; None takes every BIO tag."""

    def read(self, path: str, bad: BadRecords) -> Iterator[NerExample]:
        """The file's sentences in order, tags as BIO."""
        rows = read_rows(path, (self.tokens_column, self.tags_column), bad)
        for number, (place, (words, tags)) in enumerate(rows):
            if not _is_texts(words) or not _is_texts(tags):
                bad.found(place, f"{self.tokens_column} and {self.tags_column} must be lists of text")
            elif len(words) != len(tags):
                bad.found(place, f"{len(words)} {self.tokens_column} but {len(tags)} {self.tags_column}")
            else:
                bio = to_bio(tags)
                problem = find_bad_tag(bio, self.tags)
                if problem:
                    bad.found(place, problem)
                elif words:
                    yield NerExample(str(number), tuple(words), bio)


def _is_texts(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _label_text(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)


def _read_texts(
    table: ClassificationTable | RegressionTable, path: str, bad: BadRecords
) -> Iterator[tuple[str, list[str], object]]:
    """Place, texts and raw label of each record that has them all."""
    for place, (*texts, label) in read_rows(path, (*table.text_columns, table.label_column), bad, table.header):
        wrong = [name for name, text in zip(table.text_columns, texts, strict=True) if not isinstance(text, str)]
        if wrong:
            bad.found(place, f"{wrong[0]} holds no text")
        elif label is None or label == "":
            bad.found(place, f"{table.label_column} is empty")
        else:
            yield place, texts, label  # type: ignore[misc]


def read_rows(path: str, columns: tuple[str, ...], bad: BadRecords, header: bool = True) -> Iterator[Row]:
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


def has_columns(path: str, columns: Iterable[str], header: bool) -> bool:
    """Whether a TSV file's first line has all of `columns`."""
    first = read_decompressed(path).split(b"\n", 1)[0].decode(errors="replace").rstrip("\r").split("\t")
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
) -> Iterator[Row]:
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
            "name others with task.text_columns and task.label_column"
        )


def _jsonl_rows(path: str, columns: tuple[str, ...], bad: BadRecords) -> Iterator[Row]:
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


def _parquet_rows(path: str, columns: tuple[str, ...]) -> Iterator[Row]:
    try:
        file = pyarrow.parquet.ParquetFile(io.BytesIO(read_decompressed(path)))
        _check_columns(path, columns, file.schema_arrow.names)
        table = file.read(columns=list(columns))
    except (pyarrow.ArrowException, OSError) as error:
        raise TaskDataError(f"{path} is not a whole Parquet file: {error}; write it again") from error
    values = [table.column(column).to_pylist() for column in columns]
    for number, row in enumerate(zip(*values, strict=True), start=1):
        yield f"row {number}", row
