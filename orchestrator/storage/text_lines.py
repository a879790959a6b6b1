"""Lines of text files, packed or not, local or remote, each a plain text or a JSON object.

`stream_lines` turns a byte that is not UTF-8 into a lone surrogate (`errors="surrogateescape"`); `parse_line` names the
line of such a byte.
"""

import io
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any

import zstandard
from fsspec.compression import compr
from fsspec.utils import infer_compression

from orchestrator.errors import InputError
from orchestrator.storage.file_access import open_read

HALF_A_PAIR = "has half a surrogate pair, which is no character"


def stream_lines(path: str) -> Iterator[str]:
    """Yield the lines of a file, by path or URI, decompressed as its ending says; only a line feed ends a line.

    Raises: InputError for a file that is not there or cannot be read.
    """
    try:
        with (
            open_read(path) as raw,
            _decompressed(raw, path) as data,
            io.TextIOWrapper(data, "utf-8-sig", errors="surrogateescape", newline="\n") as lines,
        ):
            yield from lines
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; check the path") from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read ({reason}); check the path, or fetch the file again") from None


def _decompressed(raw: IO[bytes], path: str) -> IO[bytes]:
    kind = infer_compression(path)
    file: IO[bytes] = compr[kind](raw, mode="rb") if kind else raw
    return file


def json_problem(error: json.JSONDecodeError) -> str:
    """Say what is wrong with a line of JSON, and at which column.

    The reader's words for a text without an end are "Unterminated string starting at".
    """
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
    except json.JSONDecodeError as error:
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
