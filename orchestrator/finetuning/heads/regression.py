"""Regression in training: squared distance of values (W, 1)."""

from collections.abc import Sequence
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.heads import BertForSequenceClassification
from orchestrator.finetuning.heads.base import Batch
from orchestrator.finetuning.heads.sequence import SequenceHead
from orchestrator.tasks import Features
from orchestrator.tasks.types.text import TextArrays


class RegressionHead(SequenceHead):
    """A number for each text."""

    problem_type = "regression"

    def with_labels(self, config: BertConfig, labels: Sequence[str]) -> BertConfig:
        """One output, by the name that it has in transformers' model cards."""
        return config.with_labels(["score"], self.problem_type)

    def recognizes(self, folder: Path, config: BertConfig, architectures: Sequence[str]) -> bool:
        """A classifier of sequences with one output."""
        is_single = config.num_labels == 1 and config.problem_type != "multi_label_classification"
        return super().recognizes(folder, config, architectures) and is_single

    def loss(self, model: BertForSequenceClassification, logits: Tensor, batch: Batch) -> Tensor:
        """Mean squared distance from the labels."""
        return F.mse_loss(logits.squeeze(-1), batch.targets)

    def soft_loss(
        self, logits: Tensor, teacher_logits: Tensor, features: Features[TextArrays], batch: Batch, temperature: float
    ) -> Tensor:
        """Mean squared distance from the teacher's values."""
        return F.mse_loss(logits, teacher_logits)
