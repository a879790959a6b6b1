"""Lines of bytes: the same wherever the chunks were cut, never longer in memory than the limit.

Run alone: pytest tests/orchestrator/corpus/test_lines.py
"""

import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.corpus.lines import BYTE_ORDER_MARK, Line, split_lines

DIRTY = st.lists(
    st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"\x00", b"\xff", BYTE_ORDER_MARK, "\u2028é".encode(), b"word "])
).map(b"".join)


@given(DIRTY, st.lists(st.integers(0, 40)))
def test_lines_do_not_depend_on_where_chunks_end(data: bytes, cuts: list[int]) -> None:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    chunks = [data[start:end] for start, end in pairwise(places)]
    assert list(split_lines(chunks, 20)) == list(split_lines([data], 20))


@given(DIRTY)
def test_every_line_is_where_its_offset_says(data: bytes) -> None:
    for line in split_lines([data], 1000):
        assert data[line.offset : line.offset + line.num_bytes] == line.data
        assert b"\n" not in line.data


def test_only_a_line_feed_ends_a_line() -> None:
    text = "one\u2028two\u0085three\x0bfour\x0cfive\rsix\nseven"
    assert [line.data.decode() for line in split_lines([text.encode()], 1000)] == text.split("\n")


def test_byte_order_mark_and_carriage_returns_go() -> None:
    assert list(split_lines([BYTE_ORDER_MARK + b"a\r\n\r\nb"], 1000)) == [
        Line(1, 3, b"a", 1),
        Line(2, 6, b"", 0),
        Line(3, 8, b"b", 1),
    ]


def test_a_line_of_100_mb_is_held_to_the_limit() -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * (1 << 20)
        yield b"\nshort"

    tracemalloc.start()
    long, short = split_lines(chunks(), 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(long.data), long.num_bytes) == (1 << 20, 100 << 20)
    assert (short.number, short.offset, short.data) == (2, (100 << 20) + 1, b"short")
    assert peak < 8 << 20
