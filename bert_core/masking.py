"""Masks: the tokens that are hidden, and what stands in their place, chosen in units: tokens, whole words, or spans.

Devlin et al. 2019, section 3.1 (task 1): 15 % of the tokens are chosen; of these 80 % become [MASK], 10 % a random
token, 10 % stay. As in the original data script, round(mlm_probability · maskable) tokens of each row are chosen, at
least one, in units of tokens, whole words or spans (`units`). Every choice is a function of (seed, epoch, example,
position); there is no generator with a state.

Shapes: N rows, S tokens of a padded row, T tokens of all rows, P masked positions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bert_core.constants import IGNORE_INDEX
from bert_core.counter_random import derive_key, integers, random_bits, uniform
from bert_core.errors import DataError
from bert_core.ragged_rows import Int64Array, ragged_ranges, running_totals
from bert_core.text.word_boundaries import WordBoundaries

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


Mix = tuple[float, float, float]
"""Shares of the chosen tokens that become [MASK], become a random token, stay as they are."""


@dataclass(frozen=True)
class MaskingConfig:
    """Rules by which tokens are masked."""

    vocab_size: int
    mask_token_id: int
    mlm_probability: float = 0.15
    mix: Mix = (0.8, 0.1, 0.1)
    """Shares of [MASK], of random tokens and of tokens that stay: the order of the paper's text.

    The table of Devlin et al. 2019, appendix C.2, has MASK, SAME, RND.
    """
    unit: MaskUnit = "token"
    word_boundaries: WordBoundaries | None = field(default=None, compare=False, repr=False)
    """Table that tells which tokens belong to one word; None makes every token a word."""


def mask_tokens(
    input_ids: NDArray[np.integer],
    special_tokens_mask: NDArray[np.integer] | NDArray[np.bool_],
    *,
    vocab_size: int,
    mask_token_id: int,
    seed: int,
    epoch: int,
    example: ArrayLike,
    mlm_probability: float = 0.15,
    mix: Mix = (0.8, 0.1, 0.1),
    unit: MaskUnit = "token",
    word_ids: NDArray[np.integer] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return masked ids and labels (-100 where nothing is predicted), shaped as `input_ids`: (S,) or rows (N, S).

    Args:
        special_tokens_mask: 1 where a token must not be chosen: special tokens and padding.
        example: one number for a row, or an array (N,); row r depends on example[r] alone.
        word_ids: shaped as `input_ids`, for the units "word" and "span": those of a Hugging Face encoding, with -1 for
            None. Neighbors with the same number are one word; a token with -1 is not chosen. Without `word_ids` every
            token is a word.

    Raises: DataError when shapes disagree, the unit is not known or a share is impossible.
    """
    ids = np.asarray(input_ids)
    rows = np.atleast_2d(ids)
    examples = np.atleast_1d(np.asarray(example, dtype=np.int64))
    special = np.atleast_2d(np.asarray(special_tokens_mask)).astype(bool)
    if ids.ndim not in (1, 2) or special.shape != rows.shape or examples.shape != (len(rows),):
        raise DataError(
            f"input_ids {ids.shape}, special_tokens_mask {np.shape(special_tokens_mask)} and example "
            f"{np.shape(example)} do not belong together; give (S,), (S,), a number or (N, S), (N, S), (N,)"
        )
    if word_ids is not None and np.shape(word_ids) != ids.shape:
        raise DataError(f"word_ids {np.shape(word_ids)} must be shaped as input_ids {ids.shape}")
    maskable, continues = ~special.reshape(-1), None
    if word_ids is not None and unit != "token":
        words = np.asarray(word_ids).reshape(-1)
        maskable &= words >= 0
        continues = words == np.roll(words, 1)  # the value of a row's first token is not used
    config = MaskingConfig(vocab_size, mask_token_id, mlm_probability, mix, unit)
    offsets = np.arange(len(rows) + 1) * rows.shape[1]
    flat = rows.reshape(-1).astype(np.int64)
    positions, replacements = choose_masks(
        flat, offsets, maskable, config, continues=continues, seed=seed, epoch=epoch, example=examples
    )
    labels = np.full_like(flat, IGNORE_INDEX)
    labels[positions] = flat[positions]
    flat[positions] = replacements
    return flat.reshape(ids.shape), labels.reshape(ids.shape)


def choose_masks(
    input_ids: NDArray[np.integer],  # (T,) rows laid end to end
    offsets: NDArray[np.integer],  # (N + 1,) where each row begins and ends
    maskable: NDArray[np.bool_],  # (T,)
    config: MaskingConfig,
    *,
    continues: NDArray[np.bool_] | None = None,  # (T,) whether a token belongs to the word of the one before it
    seed: int,
    epoch: int,
    example: NDArray[np.int64],  # (N,)
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose the masked positions (P,), ascending in T, and the ids (P,) that stand there from now on.

    The action ([MASK], a random token, or the token itself) is drawn for each token, as in BERT, but once for a span
    (SpanBERT: Joshi et al. 2020, section 3.1); random tokens are drawn for each position.

    Raises: DataError when a share is impossible or the unit is not known.
    """
    if not 0.0 < config.mlm_probability < 1.0 or abs(sum(config.mix) - 1.0) > 1e-6 or min(config.mix) < 0.0:
        raise DataError(
            f"mlm_probability {config.mlm_probability} must lie inside (0, 1) and mix {config.mix} sum to 1"
        )
    if config.unit not in UNITS:
        raise DataError(f"unit {config.unit!r} is not known; the units of masking are {', '.join(UNITS)}")
    keys = random_bits(derive_key(seed, "masks", epoch), example)
    chosen = UNITS[config.unit](find_words(offsets, maskable, continues, config.mlm_probability), keys)
    positions, rows = chosen.positions, chosen.rows
    row_keys, begins = keys[rows], np.asarray(offsets, np.int64)[rows]
    action = uniform(random_bits(row_keys, chosen.action_positions - begins), 1)
    to_mask, to_random, _ = np.cumsum(config.mix)
    replacements = np.where(action < to_mask, config.mask_token_id, input_ids[positions])
    random_ids = integers(random_bits(row_keys, positions - begins), 2, config.vocab_size)
    return positions, np.where((action >= to_mask) & (action < to_random), random_ids, replacements)
