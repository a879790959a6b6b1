"""Estimate of a training's time from a few steps: how many examples they have, what an example then takes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

import torch

from bert_core.config import BertConfig, count_flops_per_token

NUM_MEASURED_STEPS = 3
FORWARD_SHARE = 1 / 3
"""Share of a training step's work that reading the same examples takes: a forward pass without a backward one."""
_SLOW_CPU_FLOPS = 2e10
"""FLOP/s of one thread of a slow CPU, about; decides how much is measured, not what is estimated."""
_STEP_S = 2.0
"""Few examples take much longer, each, than those of a whole batch: as many are measured as a person waits for."""
_LONGEST_EXAMPLE_S = 2.0


def num_measured_examples(config: BertConfig, num_tokens: float, num_examples: int) -> int:
    """Number of a step's `num_examples`, of `num_tokens` each, that take two seconds; 0 where one takes longer."""
    example_s = count_flops_per_token(config) * num_tokens / _SLOW_CPU_FLOPS
    return 0 if example_s > _LONGEST_EXAMPLE_S else max(1, min(num_examples, int(_STEP_S / example_s)))


def example_seconds(steps_s: Sequence[float], num_measured: float) -> float:
    """Seconds of an example by the seconds of a few steps of so many examples, of which the first one warms up.

    A whole batch has one update, too, so where a part of one is measured, this is somewhat more than it takes.

    >>> example_seconds([9.0, 3.0, 3.0], 2), example_seconds([9.0], 2)
    (1.5, 4.5)
    """
    return fmean(steps_s[1:] or steps_s) / num_measured


@contextmanager
def on_threads(num_threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
