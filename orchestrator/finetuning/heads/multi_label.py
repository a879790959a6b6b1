"""Multi-label classification in training: binary cross entropy of label logits (W, C)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.distillation import soft_target_loss
from bert_core.heads import BertForSequenceClassification
from orchestrator.finetuning.heads.base import Batch
from orchestrator.finetuning.heads.sequence import SequenceHead
from orchestrator.tasks import Features
from orchestrator.tasks.features import Array
from orchestrator.tasks.types.text import TextArrays


class MultiLabelHead(SequenceHead):
    """Any number of labels for each text."""

    problem_type = "multi_label_classification"

    def recognizes(self, folder: Path, config: BertConfig, architectures: Sequence[str]) -> bool:
        """A classifier of sequences whose configuration says so."""
        return super().recognizes(folder, config, architectures) and config.problem_type == self.problem_type

    def targets(self, features: Features[TextArrays], windows: NDArray[np.int64], tokens: NDArray[np.int64]) -> Array:
        """Whether each label is there, as 0.0 or 1.0: (W, C)."""
        return super().targets(features, windows, tokens).astype(np.float32)

    def loss(self, model: BertForSequenceClassification, logits: Tensor, batch: Batch) -> Tensor:
        """Mean binary cross entropy over windows and labels."""
        return F.binary_cross_entropy_with_logits(logits, batch.targets)

    def soft_loss(
        self, logits: Tensor, teacher_logits: Tensor, features: Features[TextArrays], batch: Batch, temperature: float
    ) -> Tensor:
        """Divergence for each label, which is a choice between it and its absence, whose logit is 0."""
        student, teacher = (F.pad(values.reshape(-1, 1), (0, 1)) for values in (logits, teacher_logits))  # (W·C, 2)
        return soft_target_loss(student, teacher, temperature)
