"""Lines of text files, packed or not, local or remote: plain text, JSON objects, rows of CSV and TSV.

`stream_lines` turns a byte that is not UTF-8 into a lone surrogate (`errors="surrogateescape"`); `parse_line` names the
line of such a byte.
"""

import csv
import io
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from fsspec.compression import compr
from fsspec.utils import infer_compression

from orchestrator.base.errors import InputError
from orchestrator.base.nearest import no_file
from orchestrator.storage.file_access import open_read

COMPRESSIONS = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\x00", ".zst": b"\x28\xb5\x2f\xfd"}
"""Endings of compressed files, and the bytes that such a file begins with."""
_SHOWN_CHARACTERS = 60
HALF_A_PAIR = "has half a surrogate pair, which is no character"


def stream_lines(path: str) -> Iterator[str]:
    """Yield the lines of a file, by path or URI, decompressed as its ending says; only a line feed ends a line.

    Raises: InputError for a file that is not there or cannot be read.
    """
    try:
        with (
            open_read(path) as raw,
            unpacked(raw, path) as data,
            io.TextIOWrapper(data, "utf-8-sig", errors="surrogateescape", newline="\n") as lines,
        ):
            yield from lines
    except FileNotFoundError:
        raise InputError(no_file(path)) from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read ({reason}); check the path, or fetch the file again") from None


def unpacked(raw: IO[bytes], path: str) -> IO[bytes]:
    """Content of a file that is open for reading, decompressed as its ending says, also one of several parts.

    A file that is cut short ends in an EOFError, an OSError or the like.
    """
    kind = infer_compression(path)
    if kind == "zstd":  # fsspec's reader takes a file that is cut short for a whole one
        import pyarrow as pa

        stream: IO[bytes] = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), kind)
        return stream
    file: IO[bytes] = compr[kind](raw, mode="rb") if kind else raw
    return file


def compression_problem(path: str, head: bytes) -> str | None:
    """Say how a file's first bytes differ from what its ending says, and the remedy; None: they do not.

    >>> compression_problem("a.csv", b"\\x1f\\x8b.."), compression_problem("a.txt.gz", b"text")
    ('holds gz data; rename it to a.csv.gz', 'is not compressed; rename it to a.txt')
    """
    packed = next((ending for ending, magic in COMPRESSIONS.items() if head.startswith(magic)), "")
    named = next((ending for ending in COMPRESSIONS if path.lower().endswith(ending)), "")
    if packed == named:
        return None
    what = f"holds {packed[1:]} data" if packed else "is not compressed"
    return f"{what}; rename it to {path[: len(path) - len(named)]}{packed}"


def json_problem(error: ValueError | RecursionError) -> str:
    """Say what is wrong with a line of JSON, and at which column.

    The reader's words for a text without an end are "Unterminated string starting at".
    """
    if isinstance(error, RecursionError):
        return "lists or objects are nested too deeply"
    if not isinstance(error, json.JSONDecodeError):
        return "a number has thousands of digits"
    return f"{error.msg.removesuffix(' starting at')} at column {error.colno}"


def numbered_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank with their line numbers, which begin at 1 and count blank lines too."""
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def parse_line(line: str, number: int) -> dict[str, Any] | str:
    """Parse a line: a JSON object where it begins with a brace, else its text. Raises: InputError, naming the line."""
    text = line.strip("\r\n")
    if any("\udc80" <= character <= "\udcff" for character in text):
        raise InputError(f"line {number} is not UTF-8; save the file as UTF-8 or leave the line out")
    if not text.lstrip().startswith("{"):
        return text
    try:
        values: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {number} is not whole JSON: {json_problem(error)}") from None
    if has_half_a_pair(values):
        raise InputError(f"line {number} {HALF_A_PAIR}; mend it or leave it out")
    return values


def check_has(key: str, values: dict[str, Any], number: int) -> None:
    """Check that the object of a line has a key. Raises: InputError, naming the line."""
    if key not in values:
        raise InputError(f"line {number}: no key {key!r}; it has: {', '.join(values)[:200] or 'none'}")


def has_half_a_pair(value: object) -> bool:
    """Whether a value read from JSON has text with a lone surrogate: JSON can escape half of an emoji."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


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
