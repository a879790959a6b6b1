"""Counter-based random numbers. Alone: pytest tests/bert_core/test_counter_random.py"""

import numpy as np
from scipy import stats

from bert_core.counter_random import derive_key, integers, permutation, random_bits, uniform


def test_random_bits_are_splitmix64() -> None:
    # First outputs of the reference generator for seed 1234567 (Vigna's splitmix64.c).
    assert random_bits(1234567, np.arange(3)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_each_number_depends_on_its_own_counter_alone() -> None:
    everything = random_bits(7, np.arange(1000))
    assert (random_bits(7, np.array([999, 3])) == everything[[999, 3]]).all()


def test_keys_broadcast_against_counters() -> None:
    keys = random_bits(1, np.arange(4))
    table = random_bits(keys[:, None], np.arange(5))
    assert table.shape == (4, 5)
    assert (table[2] == random_bits(int(keys[2]), np.arange(5))).all()


def test_keys_differ_by_every_label_and_its_type() -> None:
    keys = {derive_key(0), derive_key(1), derive_key(0, "a"), derive_key(0, "a", 1), derive_key(0, "a", "1")}
    assert len(keys) == 5


def test_uniform_numbers_are_uniform() -> None:
    numbers = uniform(derive_key(3, "test"), np.arange(20_000))
    assert stats.kstest(numbers, "uniform").pvalue > 0.001
    assert 0.0 <= numbers.min() < numbers.max() < 1.0


def test_integers_cover_their_range_evenly() -> None:
    numbers = integers(derive_key(4), np.arange(30_000), 7)
    assert stats.chisquare(np.bincount(numbers, minlength=7)).pvalue > 0.001
    assert set(numbers.tolist()) == set(range(7))


def test_integers_take_a_bound_per_counter() -> None:
    high = np.array([1, 2, 3, 1000])
    assert (integers(9, np.arange(4), high) < high).all()


def test_permutation_is_one_and_differs_by_key() -> None:
    first, second = permutation(1, 100), permutation(2, 100)
    assert sorted(first.tolist()) == list(range(100))
    assert first.tolist() != second.tolist()
