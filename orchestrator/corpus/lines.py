"""Lines of a stream of bytes: only a line feed ends one, and no line is held beyond a limit."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line without its end."""

    number: int
    """From 1."""
    offset: int
    """Of its first byte in the stream."""
    data: bytes
    """Its beginning, at most the limit."""
    num_bytes: int
    """Its length; more than `data` holds when it is longer than the limit."""


def split_lines(chunks: Iterable[bytes], max_bytes: int) -> Iterator[Line]:
    """The lines of all chunks together, wherever those were cut.

    A carriage return before the line feed and a byte order mark at the stream's beginning are taken off. U+2028 and
    its kin are characters like others.
    """
    held = bytearray()
    number, offset, num_bytes = 1, 0, 0
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            held += part[: max_bytes - len(held)]
            num_bytes += len(part)
            yield _line(number, offset, bytes(held), num_bytes)
            held.clear()
            number, offset, num_bytes = number + 1, offset + num_bytes + 1, 0
        held += rest[: max_bytes - len(held)]
        num_bytes += len(rest)
    if num_bytes:
        yield _line(number, offset, bytes(held), num_bytes)


def _line(number: int, offset: int, data: bytes, num_bytes: int) -> Line:
    if offset == 0 and data.startswith(BYTE_ORDER_MARK):
        data, offset, num_bytes = data[3:], 3, num_bytes - 3
    if len(data) == num_bytes and data.endswith(b"\r"):
        data, num_bytes = data[:-1], num_bytes - 1
    return Line(number, offset, data, num_bytes)
