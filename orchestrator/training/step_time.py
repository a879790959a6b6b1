"""Estimate of a training's time from a few steps: how many examples they have, what an example then takes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from time import perf_counter

import torch
from torch import nn
from torch.optim import Optimizer

from bert_core.config import BertConfig, count_flops_per_token
from bert_core.optimization import set_learning_rate

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


def example_seconds(steps_s: Sequence[float], update_s: float, num_measured: float, batch_size: int) -> float:
    """Seconds of an example by a few steps, of which the first one warms up; a whole batch shares one update.

    Args:
        steps_s: seconds of each step.
        update_s: seconds of an update alone.
        num_measured: examples of each of these steps.
        batch_size: examples of a step of the run.

    >>> example_seconds([9.0, 3.0, 3.0], 1.0, 2, 10), example_seconds([9.0], 1.0, 2, 2)
    (1.1, 4.5)
    """
    step_s = fmean(steps_s[1:] or steps_s)
    return max(step_s - update_s, 0.0) / num_measured + min(update_s, step_s) / batch_size


def measure_update(model: nn.Module, optimizer: Optimizer) -> float:
    """Seconds of an update of the weights, clipping included; its learning rate is 0. The first one warms up."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    set_learning_rate(optimizer, 0.0)
    begun_at = 0.0
    for _ in range(2):
        for parameter in learned:
            parameter.grad = torch.zeros_like(parameter)
        begun_at = perf_counter()
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
    seconds = perf_counter() - begun_at
    optimizer.zero_grad(set_to_none=True)
    return seconds


@contextmanager
def on_threads(num_threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
