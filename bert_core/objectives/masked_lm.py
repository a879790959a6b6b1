"""Masked language modeling: some tokens are hidden and predicted from those on both sides.

Devlin et al. 2019, section 3.1 (task 1). What is masked at a time (tokens, whole words, spans) and what stands in the
place of a masked token: `bert_core.masking`.
"""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from bert_core.config import BertConfig
from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import LaidOut
from bert_core.masking import MaskingConfig, choose_masks
from bert_core.objectives.base import HiddenTokens, Objective, TokenObjective


class MaskedLM(TokenObjective):
    """Loss of the masked positions, a share `mlm_probability` of each sequence."""

    name = "masked_lm"
    summary = "masked tokens, from the tokens on both sides (BERT)"
    metric_prefix = "mlm"
    spec_fields = frozenset({"mlm_probability", "mask_unit", "mask_mix", "model.span_boundary_objective"})

    def hide_tokens(
        self, laid: LaidOut, masking: MaskingConfig, *, seed: int, epoch: int, example: NDArray[np.int64]
    ) -> HiddenTokens:
        """Sequences with masks; what is masked in an example is a function of the seed, the epoch and its number."""
        input_ids, continues = laid.input_ids, None
        if masking.unit != "token" and masking.word_boundaries is not None:
            continues = masking.word_boundaries.continue_word(input_ids)
        positions, replacements = choose_masks(
            input_ids,
            laid.cu_seqlens,
            ~laid.is_special,
            masking,
            continues=continues,
            seed=seed,
            epoch=epoch,
            example=example,
        )
        labels = input_ids[positions]
        input_ids[positions] = replacements
        return HiddenTokens(input_ids, positions.astype(np.int32), labels)

    def num_predictions(self, batch: PackedBatch) -> int:
        return len(batch.masked_positions)


class SpanBoundary(Objective):
    """Loss of the masked positions from the two tokens beside their span; a model has its head by its configuration.

    Joshi et al. 2020 (SpanBERT), section 3.2. It reads the masks of masked language modeling and adds a second loss.
    """

    name = "span_boundary"
    summary = "a masked span's tokens, from the two tokens beside the span (SpanBERT)"
    metric_prefix = "sbo"
    has_accuracy = False

    def is_active(self, chosen: Collection[str], config: BertConfig) -> bool:
        return config.span_boundary_objective and MaskedLM.name in chosen

    def num_predictions(self, batch: PackedBatch) -> int:
        """The batch's masked positions: the loss has the same divisor as that of masked language modeling."""
        return len(batch.masked_positions)


class LeftToRight(TokenObjective):
    """Loss of all tokens but the first of each sequence: each is predicted from those before it.

    Devlin et al. 2019, section 5.1, table 5 ("LTR & No NSP"). As there, the model stays causal in fine-tuning. Special
    tokens behind the first one are predicted too, so that a model learns where a text ends.
    """

    name = "left_to_right"
    summary = "each token, from the tokens before it (GPT)"
    metric_prefix = "ltr"
    is_causal = True
    against_pairs = "predicts each token from those before it, and would learn to go on from A with whatever B follows"

    def hide_tokens(
        self, laid: LaidOut, masking: MaskingConfig, *, seed: int, epoch: int, example: NDArray[np.int64]
    ) -> HiddenTokens:
        """Sequences as they are: the causal mask hides what follows, and the labels are the tokens themselves."""
        nothing = np.empty(0, np.int32)
        return HiddenTokens(laid.input_ids, nothing, nothing)

    def num_predictions(self, batch: PackedBatch) -> int:
        """The batch's tokens without the first of each sequence."""
        return len(batch.input_ids) - batch.num_sequences
