"""Measuring of a few training steps before a run: how many examples they may have, and on how many threads they run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

import torch

from bert_core.config import BertConfig
from bert_core.model_flops import count_flops_per_token

NUM_MEASURED_STEPS = 3
FORWARD_SHARE = 1 / 3
"""Share of a training step's work that reading the same examples takes: a forward pass without a backward one."""
_SLOW_CPU_FLOPS = 2e10
"""FLOP/s that one thread of a slow CPU makes, about: decides how much is measured, and no number that is told."""
_STEP_S = 0.5
_LONGEST_EXAMPLE_S = 2.0


def num_measured_examples(config: BertConfig, num_tokens: float, num_examples: int) -> int:
    """Number of a step's examples that are measured within a second or two; 0 where one of them takes longer.

    Args:
        num_tokens: tokens of an example.
        num_examples: examples of a whole step.
    """
    example_s = count_flops_per_token(config) * num_tokens / _SLOW_CPU_FLOPS
    return 0 if example_s > _LONGEST_EXAMPLE_S else max(1, min(num_examples, int(_STEP_S / example_s)))


def typical_seconds(measured: Sequence[float]) -> float:
    """Seconds of a step by those of the first few: the very first one, which is slower, does not count.

    >>> typical_seconds([9.0, 1.0, 2.0]), typical_seconds([9.0])
    (1.5, 9.0)
    """
    return fmean(measured[1:] or measured)


@contextmanager
def on_threads(num_threads: int) -> Iterator[None]:
    """Let torch use so many threads in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
