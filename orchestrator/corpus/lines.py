"""Lines of a stream of bytes: only a line feed ends one, and no line is held beyond a limit."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line without its line break."""

    number: int
    """Number of the line, counted from 1."""
    offset: int
    """Place of the line's first byte in the stream."""
    data: bytes
    """Bytes of the line, at most as many as the limit."""
    num_bytes: int
    """Length of the line, also where it is longer than the limit and `data` is only its beginning."""


def split_lines(chunks: Iterable[bytes], max_bytes: int) -> Iterator[Line]:
    """Lines of a stream that comes in chunks, wherever the chunks were cut.

    A carriage return before the line feed, and a byte order mark at the beginning of the stream, are removed. U+2028
    and similar characters end no line.
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
