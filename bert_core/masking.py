"""Masked language modelling: which tokens are predicted, and what stands in their place.

Devlin et al. 2019, section 3.1 (task 1): 15 % of the tokens are chosen; of these 80 % become [MASK], 10 % a random
token, 10 % stay. Here exactly round(mlm_probability · maskable) tokens of each row, at least one, as the original
data script does, and every choice is a function of (seed, epoch, example, position): no generator state.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bert_core.counter_random import derive_key, integers, random_bits, uniform
from bert_core.errors import DataError

IGNORED = -100
"""A label that takes no part in a loss."""
Mix = tuple[float, float, float]


@dataclass(frozen=True)
class MaskingConfig:
    """How tokens are masked."""

    vocab_size: int
    mask_token_id: int
    mlm_probability: float = 0.15
    mix: Mix = (0.8, 0.1, 0.1)
    """Shares of the chosen tokens that become [MASK], become a random token, stay as they are."""


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
    unit: str = "token",
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Masked ids and labels (-100 where nothing is predicted), shaped as `input_ids`: one row (S,) or rows (N, S).

    `special_tokens_mask` is 1 where a token must not be chosen: special tokens and padding. `example` is one number
    for a row, or an array (N,); row r depends on example[r] alone.

    Raises: DataError when shapes disagree or a share is impossible.
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
    if unit != "token":
        raise DataError(f"unit {unit!r} is not known; the unit of masking is 'token'")
    config = MaskingConfig(vocab_size, mask_token_id, mlm_probability, mix)
    offsets = np.arange(len(rows) + 1) * rows.shape[1]
    flat = rows.reshape(-1).astype(np.int64)
    positions, replacements = choose_masks(
        flat, offsets, ~special.reshape(-1), config, seed=seed, epoch=epoch, example=examples
    )
    labels = np.full_like(flat, IGNORED)
    labels[positions] = flat[positions]
    flat[positions] = replacements
    return flat.reshape(ids.shape), labels.reshape(ids.shape)


def choose_masks(
    input_ids: NDArray[np.integer],  # (T,) rows laid end to end
    offsets: NDArray[np.integer],  # (N + 1,) where each row begins and ends
    maskable: NDArray[np.bool_],  # (T,)
    config: MaskingConfig,
    *,
    seed: int,
    epoch: int,
    example: NDArray[np.int64],  # (N,)
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions (P,) ascending in T, and the ids (P,) that stand there from now on."""
    if not 0.0 < config.mlm_probability < 1.0 or abs(sum(config.mix) - 1.0) > 1e-6 or min(config.mix) < 0.0:
        raise DataError(
            f"mlm_probability {config.mlm_probability} must lie inside (0, 1) and mix {config.mix} sum to 1"
        )
    keys = random_bits(derive_key(seed, "masks", epoch), example)
    positions, rows = _choose_positions(offsets, maskable, keys, config.mlm_probability)
    within = positions - np.asarray(offsets, np.int64)[rows]
    row_keys = random_bits(keys[rows], within)
    action = uniform(row_keys, 1)
    to_mask, to_random, _ = np.cumsum(config.mix)
    replacements = np.where(action < to_mask, config.mask_token_id, input_ids[positions])
    random_ids = integers(row_keys, 2, config.vocab_size)
    return positions, np.where((action >= to_mask) & (action < to_random), random_ids, replacements)


def _choose_positions(
    offsets: NDArray[np.integer], maskable: NDArray[np.bool_], keys: NDArray[np.uint64], probability: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """In each row, the round(probability · maskable) maskable positions with the smallest random numbers.

    One sort of 64-bit words (row, random, place among the maskable) does it for all rows: numpy's sort of plain words
    is many times faster than an argsort or a loop over rows.
    """
    candidates = np.flatnonzero(maskable)
    bounds = np.searchsorted(candidates, offsets)
    available = np.diff(bounds)
    rows = np.repeat(np.arange(len(available)), available)
    place_bits = np.uint64(max(int(available.max(initial=0)) - 1, 1).bit_length())
    row_bits = np.uint64(max(len(available) - 1, 1).bit_length())
    random_width = np.uint64(64) - place_bits - row_bits

    within = candidates - np.asarray(offsets, np.int64)[rows]
    words = random_bits(keys[rows], within) >> (np.uint64(64) - random_width) << place_bits
    words |= rows.astype(np.uint64) << (np.uint64(64) - row_bits)
    words |= (np.arange(len(candidates)) - bounds[rows]).astype(np.uint64)
    words.sort()

    wanted = np.minimum(np.maximum(np.rint(probability * available).astype(np.int64), 1), available)
    first_of_row = np.arange(len(words)) - bounds[rows] < wanted[rows]
    chosen_rows = rows[first_of_row]
    places = (words[first_of_row] & ((np.uint64(1) << place_bits) - np.uint64(1))).astype(np.int64)
    return np.sort(candidates[bounds[chosen_rows] + places]), chosen_rows
