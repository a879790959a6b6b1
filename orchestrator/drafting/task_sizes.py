"""Sizes of a fine-tuning for so many examples of some length in some time: trials, epochs, batch, length."""

import math
from dataclasses import dataclass

from bert_core.config import BertConfig
from bert_core.model_flops import count_flops_per_token
from orchestrator.drafting.time_budget import TRIAL_START_S, TimeBudget, step_seconds

_LENGTHS = (32, 64, 96, 128, 192, 256, 384, 512)
_SHARES = (0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02)
"""Shares of the epochs that are tried where all of them take too long."""
_LEAST_STEPS = 100
"""Steps of a trial below which time is not saved: they teach nothing."""
_FEWEST_STEPS = 600
"""Steps that random weights need before they tell classes apart, about."""
_FEWEST_STEPS_OF_PRETRAINED = 300
"""Steps that pretrained weights are given on few examples: with 5 epochs of 300 they end early (Mosbach et al. 2021,
section 6, take 20)."""


@dataclass(frozen=True, kw_only=True)
class TaskNumbers:
    """Numbers that sizes follow from."""

    num_train: int
    num_validation: int
    mean_tokens: float
    """Tokens of an example on average, special ones included."""
    long_tokens: int
    """Tokens that 19 of 20 examples do not exceed."""
    is_pretrained: bool
    config: BertConfig
    splits_long_examples: bool
    """Whether an example that is longer than a window becomes several windows."""
    least_length: int = 0
    """Shortest window that a kind of task can do with."""


@dataclass(frozen=True)
class TaskSizes:
    """Sizes of a sweep, and the time that it takes by estimate."""

    learning_rates: tuple[float, ...]
    seeds: tuple[int, ...]
    epochs: float
    batch_size: int
    max_seq_length: int
    minutes: float
    fits: bool
    """Whether the estimate is within the time that was given."""

    @property
    def num_trials(self) -> int:
        """Number of trials of the sweep."""
        return len(self.learning_rates) * len(self.seeds)


def choose_sizes(numbers: TaskNumbers, budget: TimeBudget) -> TaskSizes:
    """The most trials and epochs that fit: fewer trials come first, then fewer epochs, down to a twentieth of one."""
    wanted = max(numbers.long_tokens, numbers.least_length)
    length = next((n for n in _LENGTHS if n >= wanted), _LENGTHS[-1])
    length = min(length, numbers.config.max_position_embeddings - numbers.config.position_offset)
    batch_size = 32 if numbers.num_train >= 2000 else 16 if numbers.num_train >= 200 else 8
    rates = _learning_rates(numbers)
    epochs = _wanted_epochs(numbers, batch_size)
    trials = [(rates, (0, 1)), (rates, (0,)), (rates[-1:], (0,))]
    least = _LEAST_STEPS * batch_size / numbers.num_train
    fewer = [epochs, *(epochs * share for share in _SHARES if epochs * share >= least)]
    for asked in fewer:
        rounded = round(asked) if asked >= 2 else max(0.05, round(asked, 2))
        # Half of the epochs is better than one trial instead of two: a second learning rate tells more.
        for chosen_rates, seeds in trials if asked == epochs else trials[1:]:
            num_trials = len(chosen_rates) * len(seeds)
            seconds = _seconds(numbers, rounded, batch_size, length, num_trials, budget.num_cores)
            sizes = TaskSizes(
                chosen_rates, seeds, rounded, batch_size, length, seconds / 60, fits=seconds <= budget.seconds
            )
            if sizes.fits:
                return sizes
    return sizes


def _learning_rates(numbers: TaskNumbers) -> tuple[float, ...]:
    """Rates to try: those of Devlin et al. (2019, appendix A.3) for wide models; small and random ones take higher."""
    if not numbers.is_pretrained:
        return (5e-4, 1e-3)
    width = numbers.config.hidden_size
    return (2e-5, 5e-5) if width >= 512 else (1e-4, 3e-4) if width >= 256 else (3e-4, 1e-3)


def _wanted_epochs(numbers: TaskNumbers, batch_size: int) -> float:
    steps_per_epoch = math.ceil(numbers.num_train / batch_size)
    if numbers.is_pretrained:
        return min(20, max(3, round(_FEWEST_STEPS_OF_PRETRAINED / steps_per_epoch)))
    return min(30, max(3, round(_FEWEST_STEPS / steps_per_epoch)))


def _seconds(
    numbers: TaskNumbers, epochs: float, batch_size: int, length: int, num_trials: int, num_cores: int
) -> float:
    """Seconds of a sweep whose trials take a core each."""
    tokens = numbers.mean_tokens if numbers.splits_long_examples else min(numbers.mean_tokens, length)
    per_example = tokens * count_flops_per_token(numbers.config)
    num_steps = epochs * numbers.num_train / batch_size
    evaluated = max(1, round(epochs)) * numbers.num_validation * per_example / 3  # forward alone
    trial_s = step_seconds(epochs * numbers.num_train * per_example + evaluated, num_steps) + TRIAL_START_S
    return math.ceil(num_trials / max(1, num_cores)) * trial_s
