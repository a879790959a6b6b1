"""Masked language modeling: some tokens are hidden and predicted from those on both sides.

Devlin et al. 2019, section 3.1 (task 1). What is masked at a time (tokens, whole words, spans) and what stands in the
place of a masked token: `bert_core.masking`.
"""

import numpy as np
from numpy.typing import NDArray

from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import LaidOut
from bert_core.masking import MaskingConfig, choose_masks
from bert_core.objectives.base import HiddenTokens, TokenObjective


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
        """Number of masked positions in the batch."""
        return len(batch.masked_positions)
