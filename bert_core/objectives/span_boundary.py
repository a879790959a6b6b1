"""The span-boundary objective: a masked span's tokens are predicted from the two tokens beside the span.

Joshi et al. 2020 (SpanBERT), section 3.2. It reads the masks of masked language modeling and adds a second loss.
"""

from collections.abc import Collection

from bert_core.config import BertConfig
from bert_core.examples.packing import PackedBatch
from bert_core.objectives.base import Objective
from bert_core.objectives.masked_lm import MaskedLM


class SpanBoundary(Objective):
    """Loss of the masked positions, which a model has a head for where its configuration says so."""

    name = "span_boundary"
    summary = "a masked span's tokens, from the two tokens beside the span (SpanBERT)"
    metric_prefix = "sbo"
    has_accuracy = False

    def is_active(self, chosen: Collection[str], config: BertConfig) -> bool:
        """Whether the model has the head, and tokens are masked."""
        return config.span_boundary_objective and MaskedLM.name in chosen

    def num_predictions(self, batch: PackedBatch) -> int:
        """The batch's masked positions: the loss has the same divisor as that of masked language modeling."""
        return len(batch.masked_positions)
