"""Choice of the masked tokens, and of what stands in their place.

Devlin et al. 2019, section 3.1 (task 1): 15 % of the tokens are chosen; of these 80 % become [MASK], 10 % a random
token, 10 % stay. As in the original data script, round(mlm_probability · maskable) tokens of each row are chosen, at
least one, in units of tokens, whole words or spans (`units`). Every choice is a function of (seed, epoch, example,
position); there is no generator with a state.

Shapes: N rows, S tokens of a padded row, T tokens of all rows, P masked positions.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bert_core.constants import IGNORE_INDEX
from bert_core.counter_random import derive_key, integers, random_bits, uniform
from bert_core.errors import DataError
from bert_core.masking.units import UNITS, MaskUnit, find_words
from bert_core.text.word_boundaries import WordBoundaries

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
