"""Classification in training: cross entropy of class logits (W, C)."""

from collections.abc import Sequence
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.distillation import soft_target_loss
from bert_core.heads import BertForSequenceClassification
from orchestrator.finetuning.heads.base import Batch
from orchestrator.finetuning.heads.sequence import SequenceHead
from orchestrator.tasks import Features
from orchestrator.tasks.types.text import TextArrays


class ClassificationHead(SequenceHead):
    """One class for each text."""

    problem_type = "single_label_classification"

    def recognizes(self, folder: Path, config: BertConfig, architectures: Sequence[str]) -> bool:
        """A classifier of sequences with classes that exclude one another."""
        is_other = config.problem_type == "multi_label_classification" or config.num_labels == 1
        return super().recognizes(folder, config, architectures) and not is_other

    def loss(self, model: BertForSequenceClassification, logits: Tensor, batch: Batch) -> Tensor:
        """Mean cross entropy over the windows with a known class."""
        return F.cross_entropy(logits, batch.targets, ignore_index=IGNORE_INDEX)

    def soft_loss(
        self, logits: Tensor, teacher_logits: Tensor, features: Features[TextArrays], batch: Batch, temperature: float
    ) -> Tensor:
        """Divergence of the distributions over classes, mean over windows."""
        return soft_target_loss(logits, teacher_logits, temperature)
