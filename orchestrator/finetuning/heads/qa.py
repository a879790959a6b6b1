"""Question answering in training: start and end logits (T, 2), each a choice among a window's own tokens.

Shapes: W windows, T tokens, S length of a padded row.
"""

import math

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.distillation import soft_span_loss
from bert_core.heads import BertForQuestionAnswering
from orchestrator.finetuning.heads.base import Batch, HeadTraining
from orchestrator.tasks import Features
from orchestrator.tasks.features import Array
from orchestrator.tasks.types.qa_windows import QaArrays


class QuestionAnsweringHead(HeadTraining[BertForQuestionAnswering, QaArrays]):
    """First and last token of the answer."""

    model_type = BertForQuestionAnswering
    gives_token_outputs = True

    def targets(self, features: Features[QaArrays], windows: NDArray[np.int64], tokens: NDArray[np.int64]) -> Array:
        """First and last token of the answer within each window: (W, 2)."""
        arrays = features.head_arrays
        return np.stack([arrays.start_positions[windows], arrays.end_positions[windows]], axis=1)

    def logits(self, model: BertForQuestionAnswering, batch: Batch) -> Tensor:
        """Start and end logits, (T, 2)."""
        return model.packed_logits(batch.seqs).float()

    def loss(self, model: BertForQuestionAnswering, logits: Tensor, batch: Batch) -> Tensor:
        """Mean of the first and the last token's cross entropy, each over the window's own tokens."""
        rows = batch.seqs.unpack(logits).transpose(1, 2)  # (W, 2, S)
        rows = rows.masked_fill(~batch.seqs.attention_mask[:, None, :], -math.inf)
        return F.cross_entropy(rows.flatten(0, 1), batch.targets.flatten())

    def soft_loss(
        self, logits: Tensor, teacher_logits: Tensor, features: Features[QaArrays], batch: Batch, temperature: float
    ) -> Tensor:
        """Divergence of the distributions over a window's tokens, mean over windows and the answer's two ends."""
        return soft_span_loss(logits, teacher_logits, batch.seqs, temperature)

    def tokens_read(self, config: BertConfig, features: Features[QaArrays]) -> None:
        """All tokens: each may begin or end the answer."""
