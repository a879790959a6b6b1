"""Arithmetic on rows of different lengths that lie end to end, without a loop over the rows."""

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]


def ragged_ranges(starts: Int64Array, lengths: Int64Array) -> Int64Array:
    """Concatenate range(starts[0], starts[0] + lengths[0]), the next one, … as one array.

    >>> ragged_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    ranges = np.repeat(starts - (ends - lengths), lengths)
    ranges += np.arange(len(ranges))
    return ranges


def running_totals(values: Int64Array, rows: Int64Array) -> Int64Array:
    """Sum each value's row up to and including it; `rows` (ascending) says which row a value belongs to.

    >>> running_totals(np.array([3, 1, 4, 1]), np.array([0, 0, 2, 2])).tolist()
    [3, 4, 4, 5]
    """
    totals: Int64Array = np.append(0, np.cumsum(values))
    sizes = np.bincount(rows)
    before: Int64Array = totals[np.cumsum(sizes) - sizes]
    return totals[1:] - before[rows]
