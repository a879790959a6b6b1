"""Rows laid end to end. Alone: pytest tests/bert_core/test_ragged_rows.py"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.ragged_rows import ragged_ranges, running_totals


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=10))
@settings(max_examples=50, deadline=None)
def test_ranges_are_those_of_a_loop(ranges: list[tuple[int, int]]) -> None:
    starts, lengths = (np.array(column, np.int64) for column in (zip(*ranges, strict=True) if ranges else ([], [])))
    expected = [place for start, length in ranges for place in range(start, start + length)]
    assert ragged_ranges(starts, lengths).tolist() == expected


@given(st.lists(st.lists(st.integers(-5, 5), max_size=5), max_size=6))
@settings(max_examples=50, deadline=None)
def test_totals_begin_anew_with_each_row(table: list[list[int]]) -> None:
    values = np.array([value for row in table for value in row], np.int64)
    rows = np.array([number for number, row in enumerate(table) for _ in row], np.int64)
    expected = [sum(row[: place + 1]) for row in table for place in range(len(row))]
    assert running_totals(values, rows).tolist() == expected
