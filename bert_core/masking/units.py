"""What is masked at a time: tokens, whole words, or spans of words; one function each, for all rows at once.

A unit function is given the words of N rows and a key per row, and chooses positions worth at most the rows' budgets
of tokens. Which words a row loses is a function of its key and of its own words alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bert_core.config_choices import MaskUnit
from bert_core.counter_random import random_bits, uniform
from bert_core.ragged_rows import Int64Array, ragged_ranges, running_totals

MAX_SPAN_WORDS = 10
SPAN_LENGTH_SHARES = 0.8 ** np.arange(MAX_SPAN_WORDS) / (0.8 ** np.arange(MAX_SPAN_WORDS)).sum()
"""Of spans of 1 to 10 words: geometric with p = 0.2 (Joshi et al. 2020, section 3.1); 3.8 words in the mean."""

_SPAN_LENGTHS, _SPAN_PLACES = 1 << 32, (1 << 32) + 1
"""Counters of the keys for a row's spans: beyond any position, so that no number is used twice."""


@dataclass(frozen=True)
class Words:
    """What may be masked in N rows: W words, in order."""

    starts: Int64Array  # (W,) the position of a word's first token
    lengths: Int64Array  # (W,) in tokens
    rows: Int64Array  # (W,) ascending
    within: Int64Array  # (W,) the place of the first token in its row
    bounds: Int64Array  # (N + 1,) where each row's words begin and end
    budgets: Int64Array  # (N,) tokens to choose


@dataclass(frozen=True)
class Choice:
    """Chosen positions, ascending, P in all."""

    positions: Int64Array  # (P,)
    rows: Int64Array  # (P,)
    deciders: Int64Array  # (P,) the position whose random number decides what becomes of this one


def find_words(
    offsets: NDArray[np.integer], maskable: NDArray[np.bool_], continues: NDArray[np.bool_] | None, probability: float
) -> Words:
    """The words of rows laid end to end; `continues` (T,) says that a token belongs to the word of the token before it,
    which holds inside a row and between maskable tokens. Without it every token is a word.

    A row's budget is round(probability · maskable tokens), at least 1 where it has any.
    """
    tokens = np.flatnonzero(maskable)
    available = np.diff(np.searchsorted(tokens, offsets))
    budgets = np.minimum(np.maximum(np.rint(probability * available).astype(np.int64), 1), available)
    if continues is None:
        starts, lengths = tokens, np.broadcast_to(np.int64(1), len(tokens))
    else:
        begins = ~continues
        begins[1:] |= ~maskable[:-1]
        begins[offsets[:-1][available > 0]] = True
        first = np.flatnonzero(begins[tokens])
        starts, lengths = tokens[first], np.diff(np.append(first, len(tokens)))
    bounds = np.searchsorted(starts, offsets)
    rows = np.repeat(np.arange(len(available)), np.diff(bounds))
    return Words(starts, lengths, rows, starts - np.asarray(offsets, np.int64)[rows], bounds, budgets)


def choose_tokens(words: Words, keys: NDArray[np.uint64]) -> Choice:
    """Exactly the budget of one-token words, each as likely as any other."""
    bits = random_bits(keys[words.rows], words.within)
    drawn = _draw(bits, words.rows, words.bounds, words.budgets)
    positions = np.sort(words.starts[drawn])
    return Choice(positions, words.rows[drawn], positions)


def choose_words(words: Words, keys: NDArray[np.uint64]) -> Choice:
    """Whole words in random order, as long as they fit into the budget; one that does not is passed over.

    As in BERT's create_pretraining_data.py (whole word masking). Where none fits, the first is taken all the same.
    """
    bits = random_bits(keys[words.rows], words.within)
    drawn = _draw(bits, words.rows, words.bounds, np.diff(words.bounds))
    taken = np.zeros(len(drawn), bool)
    left = words.budgets.copy()
    # Who does not fit now never will. Each turn takes a word at least in every row that has one left to try, and what
    # is left after the first turn is less than a word: a handful of turns, over ever fewer words.
    trying = np.arange(len(drawn))
    while len(trying):
        trying = trying[words.lengths[drawn[trying]] <= left[words.rows[trying]]]
        lengths, rows = words.lengths[drawn[trying]], words.rows[trying]
        fits = running_totals(lengths, rows) <= left[rows]
        taken[trying[fits]] = True
        left -= np.bincount(rows[fits], lengths[fits], len(left)).astype(np.int64)
        trying = trying[~fits]
    taken[words.bounds[:-1][(left == words.budgets) & (left > 0)]] = True
    chosen = np.sort(drawn[taken])
    lengths = words.lengths[chosen]
    positions = ragged_ranges(words.starts[chosen], lengths)
    return Choice(positions, np.repeat(words.rows[chosen], lengths), positions)


def choose_spans(words: Words, keys: NDArray[np.uint64]) -> Choice:
    """Spans of whole words until the budget is used; what becomes of a span is decided once, by its first token.

    SpanBERT (Joshi et al. 2020, section 3.1) draws a length and a start, again and again. Here a row's lengths are
    drawn first, as many as could be needed, and laid down together, all ways without overlap being equally likely;
    then spans are taken in random order. The last one ends before the word that would exceed the budget; only where
    the very first word does, it is taken all the same. (SpanBERT's code cuts that word.)
    """
    rows, lengths = _span_lengths(words, keys)
    first = _lay_down(words, keys, rows, lengths)
    span_words = ragged_ranges(first, lengths)
    word_lengths, word_rows = words.lengths[span_words], words.rows[span_words]
    totals = running_totals(word_lengths, word_rows)
    taken = (totals <= words.budgets[word_rows]) | (totals == word_lengths)
    chosen = span_words[taken]
    deciders = words.starts[np.repeat(first, lengths)[taken]]
    order = np.argsort(chosen)
    chosen, word_lengths = chosen[order], words.lengths[chosen[order]]
    return Choice(
        ragged_ranges(words.starts[chosen], word_lengths),
        np.repeat(words.rows[chosen], word_lengths),
        np.repeat(deciders[order], word_lengths),
    )


UNITS: Mapping[MaskUnit, Callable[[Words, NDArray[np.uint64]], Choice]] = {
    "token": choose_tokens,
    "word": choose_words,
    "span": choose_spans,
}


def _draw(bits: NDArray[np.uint64], rows: Int64Array, bounds: Int64Array, wanted: Int64Array) -> Int64Array:
    """In each row, the `wanted` items with the smallest random bits, smallest first. Items lie row by row; `bits` are
    used up.

    One sort of 64-bit words (row, random, place in the row) does it for all rows: numpy's sort of plain words is many
    times faster than an argsort or a loop over rows. In place, as the memory for another array costs as much as the
    arithmetic.
    """
    sizes = np.diff(bounds)
    place_bits = np.uint64(max(int(sizes.max(initial=0)) - 1, 1).bit_length())
    row_bits = np.uint64(max(len(sizes) - 1, 1).bit_length())
    places = np.arange(len(rows))
    places -= bounds[rows]
    bits >>= place_bits + row_bits
    bits <<= place_bits
    bits |= places.view(np.uint64)
    bits |= rows.view(np.uint64) << (np.uint64(64) - row_bits)
    bits.sort()
    first = places < wanted[rows]
    place = (bits[first] & ((np.uint64(1) << place_bits) - np.uint64(1))).astype(np.int64)
    return bounds[rows[first]] + place


def _span_lengths(words: Words, keys: NDArray[np.uint64]) -> tuple[Int64Array, Int64Array]:
    """Rows (K,) and lengths (K,), in words, of spans that together have a word for each token of the budget."""
    wanted = np.minimum(words.budgets, np.diff(words.bounds))
    rows = np.repeat(np.arange(len(wanted)), wanted)
    draws = ragged_ranges(np.zeros_like(wanted), wanted)
    shares = uniform(random_bits(keys, _SPAN_LENGTHS)[rows], draws)
    lengths = 1 + np.searchsorted(np.cumsum(SPAN_LENGTH_SHARES)[:-1], shares, side="right")
    before = running_totals(lengths, rows) - lengths
    needed = before < wanted[rows]
    return rows[needed], np.minimum(lengths, wanted[rows] - before)[needed]


def _lay_down(words: Words, keys: NDArray[np.uint64], rows: Int64Array, lengths: Int64Array) -> Int64Array:
    """The first word (K,) of each span, so that no two overlap: with every span drawn together into one slot, the spans
    are a random choice of the row's slots."""
    num_rows = len(words.budgets)
    num_spans = np.bincount(rows, minlength=num_rows)
    num_slots = np.diff(words.bounds) - np.bincount(rows, lengths - 1, num_rows).astype(np.int64)
    slot_rows = np.repeat(np.arange(num_rows), num_slots)
    slots = ragged_ranges(np.zeros_like(num_slots), num_slots)
    bits = random_bits(random_bits(keys, _SPAN_PLACES)[slot_rows], slots)
    drawn = _draw(bits, slot_rows, np.append(0, np.cumsum(num_slots)), num_spans)
    from_left = np.argsort(drawn)
    extra = lengths[from_left] - 1
    first = np.empty_like(drawn)
    first[from_left] = slots[drawn[from_left]] + running_totals(extra, rows) - extra
    return words.bounds[rows] + first
