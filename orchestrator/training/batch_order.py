"""Order of batches and their examples: functions of (seed, epoch) and the examples' lengths, nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bert_core.counter_random import derive_key, permutation

_WINDOW_BATCHES = 32
"""Examples are sorted by length within so many batches: wide enough to make lengths alike, narrow enough to mix."""


@dataclass(frozen=True)
class Schedule:
    """Steps of a trial, and those after which it is evaluated; the last, smaller batch of an epoch counts."""

    num_examples: int
    batch_size: int
    epochs: float
    evaluations_per_epoch: int

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_examples // self.batch_size)

    @property
    def num_steps(self) -> int:
        return max(1, round(self.epochs * self.steps_per_epoch))

    @property
    def evaluation_steps(self) -> tuple[int, ...]:
        """Steps after which the trial is evaluated, evenly spread, the last one at its end.

        >>> Schedule(num_examples=100, batch_size=10, epochs=2.0, evaluations_per_epoch=2).evaluation_steps
        (5, 10, 15, 20)
        """
        count = min(num_evaluations(self.epochs, self.evaluations_per_epoch), self.num_steps)
        return tuple(round(self.num_steps * (number + 1) / count) for number in range(count))


def num_evaluations(epochs: float, evaluations_per_epoch: int) -> int:
    """Evaluations of a trial that is not ended early, at most."""
    return max(1, round(epochs * evaluations_per_epoch))


def epoch_batches(lengths: NDArray[np.int64], batch_size: int, seed: int, epoch: int) -> Iterator[NDArray[np.int64]]:
    """An epoch's batches as indices of examples: shuffled, alike in length within a batch, batches shuffled again.

    `lengths` are the tokens of each example, (N,).
    """
    order = permutation(derive_key(seed, "order", epoch), len(lengths))
    window = batch_size * _WINDOW_BATCHES
    for number, start in enumerate(range(0, len(order), window)):
        chosen = order[start : start + window]
        by_length = chosen[np.argsort(lengths[chosen], kind="stable")]
        batches = [by_length[place : place + batch_size] for place in range(0, len(by_length), batch_size)]
        for place in permutation(derive_key(seed, "batches", epoch, number), len(batches)):
            yield batches[place]
