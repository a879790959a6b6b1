"""Replaced-token detection: a small generator fills masked positions, and the model tells its tokens from the text's.

Clark et al. 2020 (ELECTRA), section 2. The model, the discriminator, learns from every token and never reads [MASK]; it
is what the run is for. The generator learns masked language modeling beside it, not to deceive it.
"""

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bert_core.config import BertConfig
from bert_core.counter_random import derive_key, random_bits
from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import LaidOut
from bert_core.masking import MaskingConfig
from bert_core.objectives.base import HiddenTokens, Objective
from bert_core.objectives.masked_lm import MaskedLM

GENERATOR_SIZE = 0.25
"""Width of a generator as a share of the model's (Clark et al. 2020, section 3.2: 1/4 to 1/2 work best)."""
DRAW_BITS = 31
"""Bits of the random numbers by which tokens are drawn."""


class ReplacedTokens(MaskedLM):
    """Loss of all tokens: is each the text's own? A generator's token that happens to be that one counts as own.

    Tokens are masked for the generator as in masked language modeling; the mix is the spec's. (The paper's code keeps
    15 % of the masked tokens and has no random ones.)
    """

    name = "replaced_tokens"
    summary = "which tokens a small generator has replaced (ELECTRA)"
    metric_prefix = "rtd"
    weight = 50.0  # Clark et al. 2020, appendix A
    against_pairs = "trains a discriminator, which has a head over tokens alone"
    spec_fields = MaskedLM.spec_fields - {"model.span_boundary_objective"} | {"generator_size"}

    def hide_tokens(
        self, laid: LaidOut, masking: MaskingConfig, *, seed: int, epoch: int, example: NDArray[np.int64]
    ) -> HiddenTokens:
        """Sequences with masks, and the random numbers by which the generator's tokens are drawn."""
        hidden = super().hide_tokens(laid, masking, seed=seed, epoch=epoch, example=example)
        rows = np.searchsorted(laid.cu_seqlens, hidden.positions, side="right") - 1  # (P,)
        keys = random_bits(derive_key(seed, "replacements", epoch), example)
        bits = random_bits(keys[rows], hidden.positions - laid.cu_seqlens[rows])
        return replace(hidden, draws=(bits >> np.uint64(64 - DRAW_BITS)).astype(np.int32))

    def num_predictions(self, batch: PackedBatch) -> int:
        """The batch's tokens, special ones too."""
        return len(batch.input_ids)

    def guessing_loss(self, vocab_size: int) -> float:
        return math.log(vocab_size) + self.weight * math.log(2)

    def metrics(self, loss: float, num_correct: float, num_predictions: float, num_tokens: float) -> dict[str, float]:
        """Loss and accuracy. Nothing is predicted over the vocabulary, so there is no perplexity."""
        return Objective.metrics(self, loss, num_correct, num_predictions, num_tokens)


class Generator(Objective):
    """Loss of the masked positions in the generator of a run that detects replaced tokens.

    Its right predictions are drawn tokens that are the text's own. They are told as `replaced_share`, the share of all
    tokens that are not: who calls each token the text's own is right in all others.
    """

    name = "generator"
    summary = "masked tokens, by the small generator of replaced_tokens"
    metric_prefix = "generator"
    has_accuracy = False

    @property
    def curve_names(self) -> tuple[str, ...]:
        return (self.loss_name, "replaced_share")

    def is_active(self, chosen: Collection[str], config: BertConfig) -> bool:
        return ReplacedTokens.name in chosen

    def num_predictions(self, batch: PackedBatch) -> int:
        """The batch's masked positions."""
        return len(batch.masked_positions)

    def metrics(self, loss: float, num_correct: float, num_predictions: float, num_tokens: float) -> dict[str, float]:
        """Loss, and the share of all tokens that are replaced."""
        metrics = super().metrics(loss, num_correct, num_predictions, num_tokens)
        return {**metrics, "replaced_share": (num_predictions - num_correct) / num_tokens}
