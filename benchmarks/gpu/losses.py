"""Losses in bf16 against fp32, step by step from the same weights on the same batches, without dropout.

In bf16 the residual stream between the layers is fp32, or bf16 as well. Rounding is noise that a run of another seed
has more of. So the yardstick stands beside: fp32 from other weights. A bf16 loss, in the mean over the last quarter of
the steps, must be as near to that of fp32 as that one, or within 1 %.
"""

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from benchmarks.gpu.own_step import PackedInputs, build_learner, own_loss, packed_inputs
from benchmarks.gpu.results import NOT_REACHED, Report, Row, Value
from benchmarks.gpu.setting import Budget, Setting
from benchmarks.gpu.texts import LearnableText, first_batches, generated_text, real_text
from bert_core.config import BertConfig
from bert_core.layers.layer_norm import set_residual_dtype
from bert_core.learning_rates import learning_rate_factor
from bert_core.optimization import set_learning_rate

LARGEST_GAP = 0.01
"""Relative difference of losses that is nothing to look at."""


class Run(NamedTuple):
    """A training whose losses are compared."""

    precision: str
    seed: int = 0
    residual: str = "fp32"
    """Precision of the residual stream."""

    @property
    def precisions(self) -> str:
        """Text for a row."""
        return f"{self.precision}, {self.residual} residual" if self.residual != "fp32" else self.precision


REFERENCE, ANOTHER_SEED = Run("fp32"), Run("fp32", seed=1)
COMPARED = (Run("bf16"), Run("bf16", residual="bf16"))
"""Runs that are held to the reference."""


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Train on each text in each precision: one row for each run."""
    for text in texts(setting):
        num_steps, batch_size, width = setting.choose((200, 128, 128), (8, 4, 16))
        batches = [
            packed_inputs(batch, setting.device) for batch in first_batches(text, num_steps, batch_size, width, seed=1)
        ]
        config = build_config(setting, text)
        ends: dict[Run, float] = {}
        for run in (REFERENCE, *COMPARED, ANOTHER_SEED):
            row: dict[str, Value] = {"text": text.name, "precision": run.precisions, "seed": run.seed}
            row["steps"] = num_steps
            if budget.is_spent:
                yield {**row, "outcome": NOT_REACHED}
                continue
            losses = train(setting, config, batches, run)
            ends[run] = statistics.mean(losses[-len(losses) // 4 :])
            yield {**row, "first loss": losses[0], "last quarter": ends[run]}
        if {REFERENCE, ANOTHER_SEED} <= ends.keys():
            yield from (compare(text.name, ends, run) for run in COMPARED)


def compare(name: str, ends: dict[Run, float], run: Run) -> Row:
    """Compare the last losses of a run with those of the reference, and these with those of another seed."""
    reference = ends[REFERENCE]
    gap, yardstick = (abs(ends[other] - reference) / reference for other in (run, ANOTHER_SEED))
    return {
        "text": name,
        "precision": f"{run.precisions} against fp32",
        "gap": gap,
        "gap of another seed": yardstick,
        "ok": gap <= max(LARGEST_GAP, yardstick),
    }


def texts(setting: Setting) -> Iterator[LearnableText]:
    """Yield the generated text and, where a path is given, the real one."""
    yield generated_text(*setting.choose((20_000, 512), (200, 48)))
    if setting.text is not None:
        yield real_text(setting.text, *setting.choose((4_000_000, 8192), (200_000, 600)))


def build_config(setting: Setting, text: LearnableText) -> BertConfig:
    """Choose a model that learns within the steps, with the text's vocabulary and no dropout."""
    return setting.build_config("mini", vocab_size=text.vocab_size).with_dropout(0.0)


def train(setting: Setting, config: BertConfig, batches: Sequence[PackedInputs], run: Run) -> list[float]:
    """Train from weights of a run's seed; the loss of each step."""
    peak, learner = 1e-3, build_learner(config, setting.device, seed=run.seed)
    if run.residual == "bf16":
        set_residual_dtype(learner.model, torch.bfloat16)
    losses = []
    for step, inputs in enumerate(batches):
        factor = learning_rate_factor(step + 1, len(batches) + 1, len(batches) // 10)
        set_learning_rate(learner.optimizer, peak * factor)
        losses.append(learner.step(own_loss(learner, inputs), run.precision))
    return [float(loss) for loss in losses]
