"""Pairs of segments that fit into a sequence together (Devlin et al. 2019, appendix A.2).

A pair that is too long loses tokens from its longer segment, at the front or at the back. The original script throws a
coin for each token; here a uniform share of the tokens to cut is cut at the front.

Shapes: n examples.
"""

import numpy as np
from numpy.typing import NDArray

from bert_core.counter_random import integers
from bert_core.examples.segments import Segments
from bert_core.ragged_rows import Int64Array

Ranges = tuple[Int64Array, Int64Array]
"""Starts (n,) and lengths (n,), in tokens."""


def fit_pairs(keys: NDArray[np.uint64], capacity: int, a: Ranges, b: Ranges, labels: NDArray[np.bool_]) -> Segments:
    """Cut the segments A and B of each pair until both together have at most `capacity` tokens.

    Counters 7 and 8 of the keys (n,) decide where a segment is cut.
    """
    (a_starts, a_lengths), (b_starts, b_lengths) = a, b
    a_kept, b_kept = truncated_lengths(a_lengths, b_lengths, capacity)
    a_starts = a_starts + integers(keys, 7, a_lengths - a_kept + 1)
    b_starts = b_starts + integers(keys, 8, b_lengths - b_kept + 1)
    return Segments.pairs((a_starts, a_kept), (b_starts, b_kept), labels)


def truncated_lengths(a: Int64Array, b: Int64Array, capacity: int) -> tuple[Int64Array, Int64Array]:
    """Lengths (n,) of A and B after the longer one (B where they are equal) was cut token by token until both fit."""
    half = (capacity + 1) // 2
    a_kept = np.where(a + b <= capacity, a, np.minimum(a, np.maximum(half, capacity - b)))
    return a_kept, np.minimum(b, capacity - a_kept)
