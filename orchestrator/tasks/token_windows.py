"""The arithmetic of token windows laid end to end."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def cumulative(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 and the running sums of `lengths`."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def segment_types(segments: NDArray[np.int64], type_of_second: int) -> NDArray[np.int8]:
    """Token types of windows whose segments a and b have these lengths, (W, 2)."""
    return np.repeat(np.tile(np.array([0, type_of_second], np.int8), len(segments)), segments.ravel())


def passage_windows(num_tokens: int, room: int, stride: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each window over a passage; none lies wholly within the one before, no token is left out."""
    begin = 0
    while True:
        end = min(begin + room, num_tokens)
        yield begin, end
        if end == num_tokens:
            return
        begin += min(room, stride)


def fill_windows(pieces: Sequence[list[int]], budget: int) -> Iterator[list[list[int]]]:
    """Pieces of tokens in order, as many to a window as fit; none may be longer than the budget.

    >>> list(fill_windows([[1, 2], [3], [4, 5]], budget=3))
    [[[1, 2], [3]], [[4, 5]]]
    """
    window: list[list[int]] = []
    used = 0
    for piece in pieces:
        if used + len(piece) > budget:
            yield window
            window, used = [], 0
        window.append(piece)
        used += len(piece)
    yield window
