"""Tokens, words and spans as units of masking. Alone: pytest tests/bert_core/masking/test_units.py"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bert_core.counter_random import random_bits
from bert_core.masking import mask_tokens
from bert_core.masking.units import SPAN_LENGTH_SHARES, UNITS, choose_spans, choose_words, find_words

OFFSETS = np.array([0, 4, 4, 9])
MASKABLE = np.array([0, 1, 1, 1, 0, 1, 1, 0, 1], bool)
CONTINUES = np.array([0, 1, 1, 0, 1, 1, 1, 1, 1], bool)


def long_rows(num_rows: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Borders, all tokens maskable, and a key per row."""
    return np.arange(num_rows + 1) * length, np.ones(num_rows * length, bool), random_bits(1, np.arange(num_rows))


def test_words_end_at_rows_and_special_tokens() -> None:
    words = find_words(OFFSETS, MASKABLE, CONTINUES, 0.5)
    assert words.starts.tolist() == [1, 3, 5, 8]
    assert words.lengths.tolist() == [2, 1, 2, 1]
    assert words.rows.tolist() == [0, 0, 2, 2]
    assert words.within.tolist() == [1, 3, 1, 4]
    assert words.bounds.tolist() == [0, 2, 2, 4]
    assert words.budgets.tolist() == [2, 0, 2]


@pytest.mark.parametrize("unit", UNITS)
def test_rows_without_words_are_left_alone(unit: str) -> None:
    words = find_words(OFFSETS, np.zeros(9, bool), None, 0.5)
    assert len(UNITS[unit](words, random_bits(1, np.arange(3))).positions) == 0  # type: ignore[index]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=30), st.floats(0.05, 0.95), st.integers(0, 2**31))
@settings(max_examples=100, deadline=None)
def test_words_are_taken_as_a_loop_would_take_them(lengths: list[int], probability: float, seed: int) -> None:
    continues = np.concatenate([[False, *[True] * (length - 1)] for length in lengths])
    words = find_words(np.array([0, len(continues)]), np.ones(len(continues), bool), continues, probability)
    key = random_bits(seed, np.arange(1))
    order = np.argsort(random_bits(key[0], words.starts), kind="stable")
    taken: list[int] = []
    for word in order.tolist():
        if sum(lengths[other] for other in taken) + lengths[word] <= words.budgets[0]:
            taken.append(word)
    expected = np.concatenate([words.starts[word] + np.arange(lengths[word]) for word in taken or order[:1]])
    assert choose_words(words, key).positions.tolist() == sorted(expected.tolist())


def test_spans_have_the_papers_lengths() -> None:
    assert SPAN_LENGTH_SHARES @ np.arange(1, 11) == pytest.approx(3.8, abs=0.02)
    offsets, maskable, keys = long_rows(40, 4000)
    chosen = choose_spans(find_words(offsets, maskable, None, 0.15), keys)
    _, lengths = np.unique(chosen.action_positions, return_counts=True)
    counts = np.bincount(lengths, minlength=11)[1:]
    assert stats.chisquare(counts, SPAN_LENGTH_SHARES * counts.sum()).pvalue > 0.001


def test_spans_are_runs_of_whole_words_that_do_not_overlap() -> None:
    offsets, maskable, keys = long_rows(50, 200)
    continues = np.random.default_rng(0).random(len(maskable)) < 0.3
    words = find_words(offsets, maskable, continues, 0.3)
    chosen = choose_spans(words, keys)
    assert (np.diff(chosen.positions) > 0).all()
    begins, lengths = np.unique(chosen.action_positions, return_counts=True)
    assert np.isin(begins, words.starts).all()
    assert np.isin(begins + lengths, [*words.starts, len(maskable)]).all()
    runs = np.concatenate([np.arange(begin, begin + length) for begin, length in zip(begins, lengths, strict=True)])
    assert runs.tolist() == chosen.positions.tolist()


def test_spans_stand_anywhere_alike() -> None:
    offsets, maskable, keys = long_rows(20_000, 40)
    chosen = choose_spans(find_words(offsets, maskable, None, 0.15), keys)
    frequency = np.bincount(chosen.positions % 40, minlength=40) / 20_000
    assert np.abs(frequency[8:-8] - frequency[8:-8].mean()).max() < 0.012
    assert frequency.min() > 0.05  # fewer spans fit around the outermost words


def test_what_becomes_of_a_span_is_decided_once() -> None:
    numbers = {"vocab_size": 1000, "mask_token_id": 4, "seed": 0, "epoch": 0, "example": np.arange(2000)}
    ids = np.full((2000, 64), 500)
    inputs, labels = mask_tokens(ids, np.zeros_like(ids), unit="span", mix=(0.5, 0.0, 0.5), **numbers)
    both = (labels[:, 1:] != -100) & (labels[:, :-1] != -100)
    assert (inputs[:, 1:] == inputs[:, :-1])[both].mean() > 0.9  # neighbors differ where two spans touch
