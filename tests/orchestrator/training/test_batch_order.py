"""Batches and steps. Run alone: pytest tests/orchestrator/training/test_batch_order.py"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.training.batch_order import Schedule, epoch_batches

LENGTHS = np.random.default_rng(0).integers(3, 60, size=1000)


@given(st.integers(1, 400), st.integers(1, 64), st.floats(0.01, 6, allow_nan=False), st.integers(1, 8))
def test_last_evaluation_is_the_last_step(examples: int, batch_size: int, epochs: float, per_epoch: int) -> None:
    schedule = Schedule(examples, batch_size, epochs, per_epoch)
    steps = schedule.evaluation_steps
    assert steps[-1] == schedule.num_steps
    assert list(steps) == sorted(set(steps))
    assert steps[0] >= 1


def test_every_example_comes_once_in_an_epoch() -> None:
    batches = list(epoch_batches(LENGTHS, 24, seed=3, epoch=1))
    assert sorted(np.concatenate(batches)) == list(range(1000))
    assert len(batches) == Schedule(1000, 24, 1.0, 1).steps_per_epoch


def test_order_is_a_function_of_seed_and_epoch() -> None:
    def first(seed: int, epoch: int) -> list[int]:
        return list(next(epoch_batches(LENGTHS, 24, seed, epoch)))

    assert first(0, 0) == first(0, 0)
    assert first(0, 0) != first(1, 0)
    assert first(0, 0) != first(0, 1)


def test_batches_are_alike_in_length() -> None:
    spreads = [np.ptp(LENGTHS[batch]) for batch in epoch_batches(LENGTHS, 24, seed=0, epoch=0)]
    assert np.median(spreads) < 10 < np.ptp(LENGTHS)


def test_short_and_long_batches_are_mixed() -> None:
    means = [LENGTHS[batch].mean() for batch in epoch_batches(LENGTHS, 24, seed=0, epoch=0)]
    rising = np.mean(np.diff(means) > 0)
    assert 0.2 < rising < 0.8
