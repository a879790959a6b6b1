"""Sizes of a pretraining that the text can bear and that fit the time: model, vocabulary, length, steps."""

from dataclasses import dataclass

from bert_core.config import BertConfig
from bert_core.model_flops import count_flops_per_prediction, count_flops_per_token
from orchestrator.drafting.time_budget import FLOPS_PER_CORE, STEP_S, TimeBudget

SIZES = ("base", "medium", "small", "mini", "tiny")
MAX_PASSES = 40
"""Passes over the text at most. Muennighoff et al. (2023, "Scaling Data-Constrained Language Models"): four passes are
nearly as good as new text, after sixteen little is gained, after forty nothing."""
_TOKENS_PER_PARAMETER = 20
"""Tokens that a model of a given size is worth training on (Hoffmann et al. 2022, compute-optimal training)."""
_MASKED_SHARE = 0.15
_FEWEST_STEPS = 40
_MANY_TOKENS = 1_400_000
"""Tokens from which on long sequences are worth their time, if there is time."""
_BATCH_SIZE = 32
_SMALL_BATCH_SIZE = 8
_FEW_STEPS = 200
"""Steps of full batches below which batches are small: a few large steps teach less than many small ones."""


@dataclass(frozen=True)
class PretrainingSizes:
    """Sizes of a pretraining, and what they come to by estimate."""

    size: str
    phases: tuple[tuple[int, float], ...]
    """Sequence lengths, and each one's share of the steps."""
    steps: int
    batch_size: int
    num_passes: float
    minutes: float
    limit: str
    """Limit that ends the training: the time, or the passes over the text."""
    learning_rate: float


def choose_sizes(
    text_tokens: float, long_tokens: float, vocab_size: int, budget: TimeBudget, config: BertConfig | None = None
) -> PretrainingSizes:
    """The largest model that the text and the time are enough for, and its steps.

    Args:
        text_tokens: tokens of all text.
        long_tokens: tokens of a long document.
        config: configuration of the model to go on with; None for random weights of a size that is chosen here.
    """
    is_small = budget.minutes <= 60 or text_tokens < _MANY_TOKENS
    phases = _phases(long_tokens, 128 if is_small else 512, config)
    mean_length = sum(length * share for length, share in phases)
    for size in ("given",) if config is not None else SIZES:
        chosen = config or BertConfig.from_size(size, vocab_size=vocab_size)
        per_token = count_flops_per_token(chosen) + _MASKED_SHARE * count_flops_per_prediction(chosen)
        token_s = per_token / (FLOPS_PER_CORE * budget.num_cores)
        batch_size = _BATCH_SIZE
        in_time = _tokens_in_time(budget, batch_size * mean_length, token_s)
        if min(in_time, MAX_PASSES * text_tokens) < _FEW_STEPS * batch_size * mean_length:
            batch_size = _SMALL_BATCH_SIZE
            in_time = _tokens_in_time(budget, batch_size * mean_length, token_s)
        tokens = min(in_time, MAX_PASSES * text_tokens)
        parameters = count_flops_per_token(chosen) / 6
        if config is not None or size == SIZES[-1] or tokens >= _TOKENS_PER_PARAMETER * parameters:
            steps = max(_FEWEST_STEPS, _round(tokens / (batch_size * mean_length)))
            return PretrainingSizes(
                size,
                phases,
                steps,
                batch_size,
                steps * batch_size * mean_length / text_tokens,
                steps * _step_seconds(batch_size * mean_length, token_s) / 60,
                "the time" if in_time <= MAX_PASSES * text_tokens else f"{MAX_PASSES} passes over the text",
                _learning_rate(chosen.hidden_size, is_pretrained=config is not None),
            )
    raise AssertionError("the smallest size is always taken")


def _step_seconds(num_tokens: float, token_s: float) -> float:
    """Seconds of a step on so many tokens, each of which takes `token_s`."""
    return num_tokens * token_s + STEP_S


def _tokens_in_time(budget: TimeBudget, tokens_per_step: float, token_s: float) -> float:
    """Tokens that steps of so many can read in the time."""
    return budget.seconds / _step_seconds(tokens_per_step, token_s) * tokens_per_step


def _phases(long_tokens: float, longest: int, config: BertConfig | None) -> tuple[tuple[int, float], ...]:
    """Half of the length first: a small model finds what attention is for in short sequences, and faster (lab log)."""
    if config is not None:
        longest = min(longest, config.max_position_embeddings - config.position_offset)
    length = next((n for n in (32, 64, 128, 256, 512) if n >= min(long_tokens, longest)), longest)
    length = min(length, longest)
    return ((length // 2, 0.8), (length, 0.2)) if length >= 128 else ((length, 1.0),)


def _learning_rate(width: int, *, is_pretrained: bool) -> float:
    if is_pretrained:
        return 5e-5 if width >= 512 else 2e-4
    return 1e-3 if width <= 256 else 5e-4 if width <= 512 else 1e-4


def _round(steps: float) -> int:
    """Steps as a round number below."""
    unit = 10 if steps < 1000 else 100 if steps < 10_000 else 1000
    return int(steps // unit) * unit
