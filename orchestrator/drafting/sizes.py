"""Sizes that data can bear and that fit the time: model, lengths, batches, steps of a pretraining; trials of a sweep.

Nothing is measured: a measured step needs the network and seconds of start. The rate is a careful one of CPU cores, and
`orchestrator plan` tells more once the spec is there. A GPU does not count in: small models are bound there by launches
of kernels, which the predictions of `docs/performance.md` leave out.
"""

import math
from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

from bert_core.config import BertConfig, count_flops_per_prediction, count_flops_per_token
from bert_core.text.characters import Characters, vocabulary_size
from orchestrator.drafting.request import DraftedStages, DraftRequest

FLOPS_PER_CORE = 20e9
"""Floating-point operations a second of a training on one core. A BERT-tiny reached 30 to 40e9 on a core of 2025 that
had nothing else to do, and 18e9 on one that was shared."""
_TRIAL_START_S = 10.0
"""Seconds that a trial takes beside its steps: a process starts, weights are loaded and saved."""
_STEP_S = 0.03
"""Seconds that a step takes beside its arithmetic."""
MAX_PASSES = 40
"""Passes over the text at most. Muennighoff et al. (2023, "Scaling Data-Constrained Language Models"): four passes are
nearly as good as new text, after sixteen little is gained, after forty nothing."""
_MODELS = ("base", "medium", "small", "mini", "tiny")
_TOKENS_PER_PARAMETER = 20
"""Tokens that a model of a given size is worth training on (Hoffmann et al. 2022, compute-optimal training)."""
_MASKED_SHARE = 0.15
_FEWEST_STEPS = 40
_MANY_TOKENS = 1_400_000
"""Tokens from which on long sequences are worth their time, if there is time."""
_FEW_STEPS = 200
"""Steps of 32 sequences below which a batch has 8: a few large steps teach less than many small ones."""
_LENGTHS = (32, 64, 96, 128, 192, 256, 384, 512)
_EPOCH_SHARES = (0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02)
"""Shares of the wanted epochs that are tried while the time is too short."""
_LEAST_STEPS = 100
"""Steps of a trial below which time is not saved: they teach nothing."""


def draft_vocabulary(
    corpus: Mapping[str, Any], characters: Characters, num_words: float, *, lowercase: bool = True
) -> DraftedStages:
    """Draft the stage that learns a vocabulary of a corpus, for random weights."""
    vocab_size = vocabulary_size(num_words, characters.num_common)
    stage: dict[str, Any] = {"kind": "tokenizer", "corpus": corpus, "vocab_size": vocab_size, "lowercase": lowercase}
    comments = {"tokenizer.vocab_size": f"As much as about {num_words:,.0f} words can teach."}
    findings = []
    if characters.has_meaningful_marks:
        stage["strip_accents"] = False
        findings.append(("marks", "letters bear marks that carry meaning, as vowels do: kept (strip_accents: false)"))
    if characters.lack_blanks:
        stage["algorithm"] = "unigram"
        findings.append(("blanks", "no blanks stand between words here: a unigram vocabulary, which needs none"))
    return DraftedStages({"tokenizer": stage}, comments, findings)


class PretrainingSizes(NamedTuple):
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


def pretraining_sizes(
    request: DraftRequest, text_tokens: float, long_tokens: float, vocab_size: int, config: BertConfig | None = None
) -> PretrainingSizes:
    """The largest model that the text and the time are enough for, and its steps.

    Args:
        long_tokens: tokens of a long document.
        config: configuration of the model to go on with; None for random weights of a size that is chosen here.
    """
    longest = 128 if request.minutes <= 60 or text_tokens < _MANY_TOKENS else 512
    longest = min(longest, longest if config is None else config.max_seq_length)
    length = min(longest, next((n for n in (32, 64, 128, 256) if n >= long_tokens), 512))
    # Half of the length first: a small model finds what attention is for in short sequences, and faster (lab log).
    phases = ((length // 2, 0.8), (length, 0.2)) if length >= 128 else ((length, 1.0),)
    mean_length = sum(length * share for length, share in phases)
    most = MAX_PASSES * text_tokens
    for size in ("given",) if config is not None else _MODELS:
        chosen = config or BertConfig.from_size(size, vocab_size=vocab_size)
        per_token = count_flops_per_token(chosen) + _MASKED_SHARE * count_flops_per_prediction(chosen)
        token_s = per_token / (FLOPS_PER_CORE * request.num_cores)
        for batch_size in (32, 8):
            step_tokens = batch_size * mean_length
            step_s = step_tokens * token_s + _STEP_S
            in_time = request.work_s / step_s * step_tokens
            tokens = min(in_time, most)
            if tokens >= _FEW_STEPS * step_tokens:
                break
        if tokens >= _TOKENS_PER_PARAMETER * count_flops_per_token(chosen) / 6:  # 6 of them a parameter
            break
    steps = tokens / step_tokens
    unit = 10 if steps < 1000 else 100 if steps < 10_000 else 1000
    steps = max(_FEWEST_STEPS, int(steps // unit) * unit)
    num_passes, minutes = steps * step_tokens / text_tokens, steps * step_s / 60
    limit = "the time" if in_time <= most else f"{MAX_PASSES} passes over the text"
    if steps == _FEWEST_STEPS:
        limit = "the minimum of steps"
    width = chosen.hidden_size
    if config is not None:
        rate = 5e-5 if width >= 512 else 2e-4
    else:
        rate = 1e-3 if width <= 256 else 5e-4 if width <= 512 else 1e-4
    return PretrainingSizes(size, phases, steps, batch_size, num_passes, minutes, limit, rate)


class TaskSizes(NamedTuple):
    learning_rates: tuple[float, ...]
    seeds: tuple[int, ...]
    epochs: float
    batch_size: int
    max_seq_length: int
    minutes: float
    fits: bool


def task_sizes(
    request: DraftRequest,
    config: BertConfig | None,
    *,
    num_train: int,
    num_validation: int,
    mean_tokens: float,
    wanted_length: int,
    splits_long_examples: bool,
) -> TaskSizes:
    """The most trials and epochs that fit: fewer trials come first, then fewer epochs, down to a twentieth of one.

    Args:
        config: configuration of the model to start from; None for random weights.
        mean_tokens: tokens of an example on average, special ones included.
        wanted_length: tokens of a window that reads most examples whole.
        splits_long_examples: whether an example that is longer than a window becomes several windows.
    """
    model = config or BertConfig.from_size("tiny", vocab_size=1000)
    length = next((n for n in _LENGTHS if n >= wanted_length), _LENGTHS[-1])
    length = min(length, model.max_seq_length)
    batch_size = 32 if num_train >= 2000 else 16 if num_train >= 200 else 8
    rates = _task_rates(config)
    # Some 600 steps of random weights, before which they tell no classes apart, and 300 of pretrained ones, which end
    # early with 5 epochs of 300 steps (Mosbach et al. 2021, section 6, take 20 epochs).
    num_steps, most = (600, 30) if config is None else (300, 20)
    epochs = min(most, max(3, round(num_steps / math.ceil(num_train / batch_size))))
    tokens = mean_tokens if splits_long_examples else min(mean_tokens, length)
    example_s = tokens * count_flops_per_token(model) / FLOPS_PER_CORE
    trials = [(rates, (0, 1)), (rates, (0,)), (rates[-1:], (0,))]
    least = _LEAST_STEPS * batch_size / num_train
    fewer = [epochs * share for share in _EPOCH_SHARES if epochs * share >= least]
    # Half of the epochs is better than one trial instead of two: a second learning rate tells more.
    for asked, (some_rates, seeds) in [*((epochs, some) for some in trials), *product(fewer, trials[1:])]:
        rounded = round(asked) if asked >= 2 else max(0.05, round(asked, 2))
        evaluated = max(1, round(rounded)) * num_validation / 3  # forward alone
        step_s = _STEP_S * rounded * num_train / batch_size
        trial_s = (rounded * num_train + evaluated) * example_s + step_s + _TRIAL_START_S
        seconds = math.ceil(len(some_rates) * len(seeds) / max(1, request.num_cores)) * trial_s
        if fits := seconds <= request.work_s:
            break
    return TaskSizes(some_rates, seeds, rounded, batch_size, length, seconds / 60, fits)


def _task_rates(config: BertConfig | None) -> tuple[float, ...]:
    """Rates to try: those of Devlin et al. (2019, appendix A.3) for wide models; small and random ones take higher."""
    if config is None:
        return (5e-4, 1e-3)
    width = config.hidden_size
    return (2e-5, 5e-5) if width >= 512 else (1e-4, 3e-4) if width >= 256 else (3e-4, 1e-3)
