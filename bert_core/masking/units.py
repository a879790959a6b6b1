"""Units of masking: tokens, whole words, or spans of words; one function for each, for all rows at once.

A unit's function gets the words of N rows and a key for each row, and chooses positions within each row's budget of
tokens. The choice in a row is a function of the row's key and of its own words alone.

Shapes: N rows, T tokens, W words, P masked positions, K spans.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bert_core.counter_random import random_bits, uniform
from bert_core.ragged_rows import Int64Array, ragged_ranges, running_totals

MaskUnit = Literal["token", "word", "span"]
"""Values of `mask_unit` in a spec: what is masked as one piece, a token, a whole word or a span of words."""

MAX_SPAN_WORDS = 10
SPAN_LENGTH_SHARES = 0.8 ** np.arange(MAX_SPAN_WORDS) / (0.8 ** np.arange(MAX_SPAN_WORDS)).sum()
"""Shares of the spans by their number of words: geometric with p = 0.2 (Joshi et al. 2020, section 3.1)."""

_SPAN_LENGTHS, _SPAN_PLACES = 1 << 32, (1 << 32) + 1
"""Counters of a row's random numbers for its spans: larger than any position, so that no number is used twice."""


@dataclass(frozen=True)
class MaskableWords:
    """The words of N rows that may be masked, in order."""

    starts: Int64Array  # (W,) position of a word's first token
    lengths: Int64Array  # (W,) in tokens
    rows: Int64Array  # (W,) the word's row, ascending
    within: Int64Array  # (W,) place of the first token in its row
    bounds: Int64Array  # (N + 1,) row r has the words from bounds[r] up to bounds[r + 1]
    budgets: Int64Array  # (N,) tokens to mask


@dataclass(frozen=True)
class MaskedPositions:
    """The positions that a unit's function chose."""

    positions: Int64Array  # (P,) ascending
    rows: Int64Array  # (P,) the position's row
    action_positions: Int64Array  # (P,) the position whose random number decides what stands here


def find_words(
    offsets: NDArray[np.integer], maskable: NDArray[np.bool_], continues: NDArray[np.bool_] | None, probability: float
) -> MaskableWords:
    """Words of rows laid end to end, and each row's budget.

    A row's budget is round(probability · maskable tokens), at least 1 where it has maskable tokens.

    Args:
        offsets: (N + 1,) where each row begins and ends.
        maskable: (T,) whether a token may be masked.
        continues: (T,) whether a token belongs to the word of the token before it, if both are maskable tokens of one
            row. Without it every token is a word.
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
    return MaskableWords(starts, lengths, rows, starts - np.asarray(offsets, np.int64)[rows], bounds, budgets)


def choose_tokens(words: MaskableWords, keys: NDArray[np.uint64]) -> MaskedPositions:
    """Choose as many one-token words as the budget says, each as likely as any other."""
    bits = random_bits(keys[words.rows], words.within)
    drawn = _draw(bits, words.rows, words.bounds, words.budgets)
    positions = np.sort(words.starts[drawn])
    return MaskedPositions(positions, words.rows[drawn], positions)


def choose_words(words: MaskableWords, keys: NDArray[np.uint64]) -> MaskedPositions:
    """Choose whole words in random order, and pass over a word that does not fit into what is left of the budget.

    As in BERT's create_pretraining_data.py (whole word masking). Where no word fits, the first one is taken.
    """
    bits = random_bits(keys[words.rows], words.within)
    drawn = _draw(bits, words.rows, words.bounds, np.diff(words.bounds))
    taken = np.zeros(len(drawn), bool)
    left = words.budgets.copy()
    # A word that does not fit now will never fit. Each turn takes at least one word in every row that has words left to
    # try, and after the first turn little of the budget is left: so there are few turns, over fewer and fewer words.
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
    return MaskedPositions(positions, np.repeat(words.rows[chosen], lengths), positions)


def choose_spans(words: MaskableWords, keys: NDArray[np.uint64]) -> MaskedPositions:
    """Choose spans of whole words until the budget is used; the first token of a span decides what becomes of it.

    SpanBERT (Joshi et al. 2020, section 3.1) draws a length and a start, again and again. Here a row's lengths are
    drawn first, as many as could be needed, and laid down together: all ways without overlap are equally likely. Then
    spans are taken in random order. The last one ends before the word that would exceed the budget; if that is the very
    first word, it is taken. (SpanBERT's code cuts that word.)
    """
    rows, lengths = _span_lengths(words, keys)
    first = _lay_down(words, keys, rows, lengths)
    span_words = ragged_ranges(first, lengths)
    word_lengths, word_rows = words.lengths[span_words], words.rows[span_words]
    totals = running_totals(word_lengths, word_rows)
    taken = (totals <= words.budgets[word_rows]) | (totals == word_lengths)
    chosen = span_words[taken]
    action_positions = words.starts[np.repeat(first, lengths)[taken]]
    order = np.argsort(chosen)
    chosen, word_lengths = chosen[order], words.lengths[chosen[order]]
    return MaskedPositions(
        ragged_ranges(words.starts[chosen], word_lengths),
        np.repeat(words.rows[chosen], word_lengths),
        np.repeat(action_positions[order], word_lengths),
    )


UNITS: Mapping[MaskUnit, Callable[[MaskableWords, NDArray[np.uint64]], MaskedPositions]] = {
    "token": choose_tokens,
    "word": choose_words,
    "span": choose_spans,
}


def _draw(bits: NDArray[np.uint64], rows: Int64Array, bounds: Int64Array, wanted: Int64Array) -> Int64Array:
    """Draw `wanted` (N,) items of each row: those with the smallest random bits, smallest first.

    Items lie row by row, row r from bounds[r] up to bounds[r + 1]; `bits` is overwritten. One sort of 64-bit words
    (row, random bits, place in the row) does it for all rows: numpy sorts plain words many times faster than by an
    argsort or a loop over rows. It is done in place, as the memory for another array costs as much as the arithmetic.
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


def _span_lengths(words: MaskableWords, keys: NDArray[np.uint64]) -> tuple[Int64Array, Int64Array]:
    """Rows (K,) and lengths (K,), in words, of spans that together have a word for each token of the budget."""
    wanted = np.minimum(words.budgets, np.diff(words.bounds))
    rows = np.repeat(np.arange(len(wanted)), wanted)
    draws = ragged_ranges(np.zeros_like(wanted), wanted)
    shares = uniform(random_bits(keys, _SPAN_LENGTHS)[rows], draws)
    lengths = 1 + np.searchsorted(np.cumsum(SPAN_LENGTH_SHARES)[:-1], shares, side="right")
    before = running_totals(lengths, rows) - lengths
    needed = before < wanted[rows]
    return rows[needed], np.minimum(lengths, wanted[rows] - before)[needed]


def _lay_down(words: MaskableWords, keys: NDArray[np.uint64], rows: Int64Array, lengths: Int64Array) -> Int64Array:
    """First word (K,) of each span, so that no two spans overlap.

    With every span contracted to one slot, the spans of a row are a random choice of its slots.
    """
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
