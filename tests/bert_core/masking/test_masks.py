"""Masked tokens, and what stands in their place. Alone: pytest tests/bert_core/masking/test_masks.py"""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.errors import DataError
from bert_core.masking import mask_tokens

VOCAB, MASK = 1000, 4


def rows(num_rows: int, length: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    ids = generator.integers(5, VOCAB, (num_rows, length))
    special = np.zeros_like(ids)
    special[:, 0] = 1
    for row, end in enumerate(generator.integers(1, length + 1, num_rows)):
        special[row, end:] = 1
    return ids, special


def words_of(ids: np.ndarray, special: np.ndarray, seed: int = 0, longest: int = 4) -> np.ndarray:
    """Words of 1 to `longest` tokens, numbered from 0 in each row; -1 where a token is special."""
    lengths = np.random.default_rng(seed).integers(1, longest + 1, ids.shape)
    words = np.stack([np.repeat(np.arange(len(row)), row)[: len(row)] for row in lengths])
    return np.where(special == 1, -1, words)


def mask(ids: np.ndarray, special: np.ndarray, **changes: object) -> tuple[np.ndarray, np.ndarray]:
    settings: dict = {"vocab_size": VOCAB, "mask_token_id": MASK, "seed": 1, "epoch": 0, "example": np.arange(len(ids))}
    return mask_tokens(ids, special, **(settings | changes))


@given(st.integers(1, 20), st.integers(2, 80), st.floats(0.01, 0.99), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_exactly_the_rounded_share_is_chosen_and_at_least_one(num_rows, length, probability, seed) -> None:
    ids, special = rows(num_rows, length, seed)
    _, labels = mask(ids, special, mlm_probability=probability)
    for row in range(num_rows):
        maskable = int((special[row] == 0).sum())
        assert (labels[row] != -100).sum() == min(max(round(probability * maskable), 1), maskable)


def test_special_tokens_are_never_masked() -> None:
    ids, special = rows(50, 40)
    inputs, labels = mask(ids, special, mlm_probability=0.9)
    assert (labels[special == 1] == -100).all()
    assert (inputs[special == 1] == ids[special == 1]).all()


def test_labels_hold_the_original_and_other_positions_are_untouched() -> None:
    ids, special = rows(50, 40)
    inputs, labels = mask(ids, special)
    chosen = labels != -100
    assert (labels[chosen] == ids[chosen]).all()
    assert (inputs[~chosen] == ids[~chosen]).all()


def test_a_row_depends_on_its_own_example_alone() -> None:
    ids, special = rows(8, 40)
    together = mask(ids, special, example=np.array([7, 3, 9, 1, 0, 2, 4, 5]))
    alone = mask_tokens(ids[2], special[2], vocab_size=VOCAB, mask_token_id=MASK, seed=1, epoch=0, example=9)
    assert (together[0][2] == alone[0]).all()
    assert (together[1][2] == alone[1]).all()


@pytest.mark.parametrize(
    ("num_rows", "length", "probability", "mix", "seed", "epoch", "expected"),
    [
        (1, 1, 0.15, (0.8, 0.1, 0.1), 0, 0, "00b9b3e917a6dd28"),
        (7, 33, 0.15, (0.8, 0.1, 0.1), 1, 0, "615fc1775a350343"),
        (300, 128, 0.15, (0.8, 0.1, 0.1), 2, 5, "dab6f901e9cae02c"),
        (64, 512, 0.3, (0.8, 0.0, 0.2), 3, 1, "34613adc4e5d7ec2"),
        (16, 20, 0.9, (0.0, 0.0, 1.0), 4, 2, "e037b36e200d8954"),
    ],
)
def test_masks_are_those_of_every_version_and_machine(
    num_rows: int, length: int, probability: float, mix: tuple, seed: int, epoch: int, expected: str
) -> None:
    generator = np.random.default_rng(num_rows)
    ids = generator.integers(5, VOCAB, (num_rows, length))
    special = generator.random((num_rows, length)) < 0.1
    numbers = {"seed": seed, "epoch": epoch, "example": np.arange(num_rows) * 7}
    masked = mask(ids, special, mlm_probability=probability, mix=mix, **numbers)
    assert hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in masked)).hexdigest()[:16] == expected


@pytest.mark.parametrize("change", [{"seed": 2}, {"epoch": 1}, {"example": np.arange(1, 9)}])
def test_masks_change_with_seed_epoch_and_example(change: dict) -> None:
    ids, special = rows(8, 60)
    assert (mask(ids, special)[1] != mask(ids, special, **change)[1]).any()


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize(
    "mix", [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.8, 0.2, 0.0), (0.8, 0.0, 0.2), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]
)
def test_any_mix_gives_its_shares_in_any_unit(mix: tuple[float, float, float], unit: str) -> None:
    inputs, labels = mask(np.full((3000, 60), 500), np.zeros((3000, 60)), mix=mix, unit=unit)
    chosen = inputs[labels != -100]
    shares = [(chosen == MASK).mean(), ((chosen != MASK) & (chosen != 500)).mean(), (chosen == 500).mean()]
    assert np.abs(np.subtract(shares, mix)).max() < (0.03 if unit == "span" else 0.01)


def test_positions_are_chosen_evenly() -> None:
    _, labels = mask(np.full((20_000, 20), 500), np.zeros((20_000, 20)))
    frequency = (labels != -100).mean(axis=0)
    assert np.abs(frequency - 0.15).max() < 0.015


def test_a_row_without_maskable_tokens_is_left_alone() -> None:
    inputs, labels = mask(np.full((1, 5), 7), np.ones((1, 5)))
    assert (inputs == 7).all()
    assert (labels == -100).all()


@pytest.mark.parametrize(
    "change",
    [
        {"example": np.arange(3)},
        {"mlm_probability": 0.0},
        {"mix": (0.9, 0.9, 0.1)},
        {"unit": "letter"},
        {"unit": "word", "word_ids": np.zeros((8, 9))},
    ],
)
def test_impossible_settings_are_refused(change: dict) -> None:
    ids, special = rows(8, 10)
    with pytest.raises(DataError):
        mask(ids, special, **change)


UNITS = pytest.mark.parametrize("unit", ["word", "span"])


@given(
    st.sampled_from(["word", "span"]),
    st.integers(1, 20),
    st.integers(2, 80),
    st.integers(1, 6),
    st.floats(0.01, 0.99),
    st.integers(0, 2**31),
)
@settings(max_examples=100, deadline=None)
def test_whole_words_are_chosen_within_the_budget(unit, num_rows, length, longest, probability, seed) -> None:
    ids, special = rows(num_rows, length, seed)
    words = words_of(ids, special, seed, longest)
    inputs, labels = mask(ids, special, unit=unit, word_ids=words, mlm_probability=probability)
    hidden = labels != -100
    assert not hidden[special == 1].any()
    assert (inputs[~hidden] == ids[~hidden]).all()
    assert (labels[hidden] == ids[hidden]).all()
    for row in range(num_rows):
        chosen = {word for word in words[row] if hidden[row][words[row] == word].any()}
        assert all(hidden[row][words[row] == word].all() for word in chosen)
        maskable = int((special[row] == 0).sum())
        budget = min(max(round(probability * maskable), 1), maskable)
        assert hidden[row].sum() <= budget or len(chosen) == 1
        assert hidden[row].any() == (maskable > 0)
        if unit == "word":  # a word that is left would exceed the budget
            rest = np.bincount(words[row][(words[row] >= 0) & ~hidden[row]])
            assert len(rest) == 0 or min(rest[rest > 0], default=length) > budget - hidden[row].sum()


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_without_words_every_token_is_one_and_the_budget_is_met(unit: str) -> None:
    ids, special = rows(50, 60)
    _, labels = mask(ids, special, unit=unit)
    maskable = (special == 0).sum(axis=1)
    assert ((labels != -100).sum(axis=1) == np.minimum(np.maximum(np.rint(0.15 * maskable), 1), maskable)).all()


def test_words_of_one_token_are_masked_as_tokens() -> None:
    ids, special = rows(50, 60)
    for one, other in zip(mask(ids, special), mask(ids, special, unit="word"), strict=True):
        assert (one == other).all()


@UNITS
def test_a_row_of_words_depends_on_its_own_example_alone(unit: str) -> None:
    ids, special = rows(8, 40)
    words = words_of(ids, special)
    together = mask(ids, special, unit=unit, word_ids=words, example=np.array([7, 3, 9, 1, 0, 2, 4, 5]))
    alone = mask(ids[2:3], special[2:3], unit=unit, word_ids=words[2:3], example=np.array([9]))
    assert (together[0][2] == alone[0]).all()
    assert (together[1][2] == alone[1]).all()


def test_words_are_chosen_evenly() -> None:
    ids = np.full((20_000, 40), 500)
    words = np.tile(np.repeat(np.arange(20), 2), (len(ids), 1))
    _, labels = mask(ids, np.zeros_like(ids), unit="word", word_ids=words)
    assert np.abs((labels != -100).mean(axis=0) - 0.15).max() < 0.015


def test_a_word_begins_anew_after_a_special_token() -> None:
    ids, special = np.full((2000, 9), 500), np.zeros((2000, 9), int)
    special[:, [0, 4, 8]] = 1
    words = np.tile([-1, 0, 0, 1, -1, 1, 2, 2, -1], (2000, 1))  # as the two segments of a Hugging Face encoding
    _, labels = mask(ids, special, unit="word", word_ids=words, mlm_probability=0.17)
    hidden = labels != -100
    assert (hidden.sum(axis=1) == 1).all()
    assert set(np.flatnonzero(hidden.any(axis=0)).tolist()) == {3, 5}
