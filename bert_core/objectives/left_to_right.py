"""Language modeling from left to right: each token is predicted from those before it.

Devlin et al. 2019, section 5.1, table 5 ("LTR & No NSP"), which compares BERT with GPT's way of pretraining. As there,
the model stays causal in fine-tuning. Special tokens behind the first one are predicted too, so that a model learns
where a text ends.
"""

import numpy as np
from numpy.typing import NDArray

from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import LaidOut
from bert_core.masking import MaskingConfig
from bert_core.objectives.base import HiddenTokens, TokenObjective


class LeftToRight(TokenObjective):
    """Loss of all tokens but the first of each sequence, which has none before it."""

    name = "left_to_right"
    summary = "each token, from the tokens before it (GPT)"
    metric_prefix = "ltr"
    is_causal = True

    def hide_tokens(
        self, laid: LaidOut, masking: MaskingConfig, *, seed: int, epoch: int, example: NDArray[np.int64]
    ) -> HiddenTokens:
        """Sequences as they are: the causal mask hides what follows, and the labels are the tokens themselves."""
        nothing = np.empty(0, np.int32)
        return HiddenTokens(laid.input_ids, nothing, nothing)

    def num_predictions(self, batch: PackedBatch) -> int:
        """The batch's tokens without the first of each sequence."""
        return len(batch.input_ids) - batch.num_sequences
