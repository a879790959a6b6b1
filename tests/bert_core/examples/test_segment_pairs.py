"""Pairs that fit into a sequence. Alone: pytest tests/bert_core/examples/test_segment_pairs.py"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.examples.segment_pairs import truncated_lengths


@given(st.integers(1, 60), st.integers(1, 60), st.integers(2, 60))
@settings(max_examples=300, deadline=None)
def test_truncation_cuts_the_longer_token_by_token(a: int, b: int, capacity: int) -> None:
    long_a, long_b = a, b
    while long_a + long_b > capacity:
        if long_a > long_b:
            long_a -= 1
        else:
            long_b -= 1
    kept_a, kept_b = truncated_lengths(np.array([a]), np.array([b]), capacity)
    assert (kept_a[0], kept_b[0]) == (long_a, long_b)
