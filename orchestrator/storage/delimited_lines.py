"""Rows as lines of CSV or TSV, in the form in which this project's own readers take them in again."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from orchestrator.errors import InputError

_SHOWN_CHARACTERS = 60


def csv_lines(rows: Iterable[Sequence[object]], delimiter: str = ",") -> Iterator[str]:
    r"""Yield each row as a line that ends in a line feed, fields quoted as RFC 4180 says; None is an empty field.

    Python's writer quotes a carriage return only where its line end has one, and its reader refuses one that is not
    quoted. So rows are written with the line end of RFC 4180, which is then replaced.

    >>> list(csv_lines([("text", "label"), ("a\rb", None)]))
    ['text,label\n', '"a\rb",\n']
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator="\r\n")
    for row in rows:
        writer.writerow(row)
        yield buffer.getvalue().removesuffix("\r\n") + "\n"
        buffer.seek(0)
        buffer.truncate()


def tsv_lines(names: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield each row as a line with tabs between its fields, as in GLUE's files; None is an empty field.

    Args:
        names: the columns' names, for the message about a field that TSV cannot hold.

    Raises: InputError for a field with a tab or a line feed: TSV has no quotation marks.
    """
    for row in rows:
        fields = ["" if field is None else str(field) for field in row]
        for name, field in zip(names, fields, strict=True):
            if "\t" in field or "\n" in field:
                raise InputError(
                    f"a value of {name!r} has a tab or a line end, which TSV cannot hold: "
                    f"{field[:_SHOWN_CHARACTERS]!r}; write .csv or .jsonl"
                )
        yield "\t".join(fields) + "\n"
