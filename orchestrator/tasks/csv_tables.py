"""CSV tables as rows of fields, quoted as RFC 4180 says.

Fields may be apart by something else than a comma (`DELIMITERS`), which the first line shows, or says: a spreadsheet
may write `sep=;` there, above the names of the columns.
"""

import csv
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from orchestrator.base.errors import TaskDataError
from orchestrator.tasks.text_files import BadRecords, read_encoded, read_lines

DELIMITERS = (",", ";", "\t", "|")
"""Characters that may stand between the fields of a CSV file: spreadsheets write semicolons where 0,5 is a number."""
_DECLARATION = re.compile(r'"?sep=(.)"?')
_QUOTED_CELL = re.compile(r'"((?:[^"]++|"")*+)"(?![^\t\n])')
_PROBLEMS = {
    "new-line character": "some lines end at a carriage return (CR) alone and others do not; save the file with CRLF "
    "or LF line ends",
    "expected after": 'a quotation mark stands within a quoted cell; write it as "" (not with a backslash, \\")',
}
"""Problems of a CSV file, by what the csv module says of them."""

csv.field_size_limit(2**31 - 1)  # a document is a field: Python's own limit, 131,072 characters, is less than many have


class CsvHeader(NamedTuple):
    """The first line of a CSV table, and how its lines are read."""

    line: str
    delimiter: str
    num_above: int
    """Lines above it: blank ones, and the one where the file says its delimiter."""


def csv_header(lines: Iterator[str], columns: Iterable[str] | None) -> CsvHeader:
    """Take the first line of the table from a CSV file's lines.

    Args:
        columns: names that are expected in it; None where they are not known.
    """
    declared = None
    for num_above, line in enumerate(lines):
        delimiter = declared_delimiter(line) if declared is None else None
        if delimiter is None and line.strip():
            return CsvHeader(line, declared or find_delimiter(line, columns), num_above)
        declared = declared or delimiter
    return CsvHeader("", DELIMITERS[0], 0)


def declared_delimiter(line: str) -> str | None:
    """The delimiter that the first line of a CSV file says, as Excel writes it; None for a line of the table.

    >>> declared_delimiter("sep=;"), declared_delimiter("text;label")
    (';', None)
    """
    found = _DECLARATION.fullmatch(line.strip("\r\n"))
    return found[1] if found else None


def find_delimiter(line: str, columns: Iterable[str] | None) -> str:
    """The delimiter of a CSV file by its first line: the first one that finds all of `columns`, else most fields.

    >>> find_delimiter("text;label", ("text", "label")), find_delimiter("a,b;c;d", ()), find_delimiter("a|b|c", None)
    (';', ',', '|')
    """
    wanted = None if columns is None else set(columns)
    for delimiter in DELIMITERS:
        if wanted is not None and wanted <= set(_fields(line, delimiter)):
            return delimiter
    return max(DELIMITERS, key=lambda delimiter: len(_fields(line, delimiter)))


def fields_of(line: str) -> tuple[str, ...]:
    """Fields of a line of a table, whatever separates them; a line that is none has one."""
    only = next(iter(line.splitlines()), "")
    return tuple(_fields(only, find_delimiter(only, None)))


def is_quoted_tsv(path: str) -> bool:
    """Whether a TSV file is quoted as spreadsheets and pandas do it: every quotation mark belongs to a quoted cell.

    Some cell must need it, or the first name of a column have it: quotation marks around whole cells may be text.
    """
    text = read_encoded(path).decode(errors="replace").replace("\r\n", "\n")
    is_needed, holds_marks = text.startswith('"'), False
    start = text.find('"')
    while start >= 0:
        cell = _QUOTED_CELL.match(text, start)
        if cell is None or (start and text[start - 1] not in "\t\n"):
            return False
        is_needed = is_needed or '""' in cell[1]
        holds_marks = holds_marks or "\t" in cell[1] or "\n" in cell[1]
        start = text.find('"', cell.end())
    return is_needed or (holds_marks and len({line.count("\t") for line in text.split("\n") if line}) > 1)


def csv_rows(
    path: str, columns: Iterable[str] | None, bad: BadRecords, delimiter: str | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Each row of a file with its place, the names of the columns first.

    Args:
        columns: names that are expected in the first row, empty without a header; None where they are not known.
        delimiter: what stands between fields; None finds it.

    Raises: TaskDataError for a quotation mark that nothing closes.
    """
    lines = (line + "\n" for _, line in read_lines(path, bad))
    first, found, num_above = csv_header(lines, columns)
    reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter or found, strict=True)
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
            known = (problem for sign, problem in _PROBLEMS.items() if sign in str(error))
            bad.found(place, f"not CSV: {next(known, error)}", num_lines=reader.line_num - before)
            continue
        if row:
            yield place, row


def _fields(line: str, delimiter: str) -> list[str]:
    """Fields of one line; a line that is no CSV has one."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return [line]
