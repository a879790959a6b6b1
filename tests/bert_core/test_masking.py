"""Which tokens are masked, and with what. Alone: pytest tests/bert_core/test_masking.py"""

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


@pytest.mark.parametrize("change", [{"seed": 2}, {"epoch": 1}, {"example": np.arange(1, 9)}])
def test_masks_change_with_seed_epoch_and_example(change: dict) -> None:
    ids, special = rows(8, 60)
    assert (mask(ids, special)[1] != mask(ids, special, **change)[1]).any()


def test_masks_are_the_same_again() -> None:
    ids, special = rows(8, 60)
    first, second = mask(ids, special), mask(ids, special)
    assert (first[0] == second[0]).all()
    assert (first[1] == second[1]).all()


def test_mix_gives_its_shares() -> None:
    ids, special = np.full((2000, 100), 500), np.zeros((2000, 100))
    inputs, labels = mask(ids, special)
    chosen = inputs[labels != -100]
    assert abs((chosen == MASK).mean() - 0.8) < 0.01
    assert abs((chosen == 500).mean() - 0.1) < 0.01
    replaced = chosen[(chosen != MASK) & (chosen != 500)]
    assert replaced.min() < VOCAB * 0.02
    assert replaced.max() > VOCAB * 0.98


@pytest.mark.parametrize(("mix", "expected"), [((1.0, 0.0, 0.0), {MASK}), ((0.0, 0.0, 1.0), {500})])
def test_pure_mixes_do_one_thing(mix: tuple[float, float, float], expected: set[int]) -> None:
    inputs, labels = mask(np.full((50, 50), 500), np.zeros((50, 50)), mix=mix)
    assert set(inputs[labels != -100].tolist()) == expected


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
    [{"example": np.arange(3)}, {"mlm_probability": 0.0}, {"mix": (0.9, 0.9, 0.1)}, {"unit": "letter"}],
)
def test_impossible_settings_are_refused(change: dict) -> None:
    ids, special = rows(8, 10)
    with pytest.raises(DataError):
        mask(ids, special, **change)
