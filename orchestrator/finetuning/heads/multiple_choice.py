"""Multiple choice in training: cross entropy over the choices of an example.

Shapes: W windows, one for each choice; G examples; C choices of each.
"""

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bert_core.constants import IGNORE_INDEX
from bert_core.distillation import soft_target_loss
from bert_core.heads import BertForMultipleChoice
from orchestrator.finetuning.heads.base import Batch, HeadTraining
from orchestrator.tasks import Features
from orchestrator.tasks.features import Array
from orchestrator.tasks.types.multiple_choice import ChoiceArrays


class MultipleChoiceHead(HeadTraining[BertForMultipleChoice, ChoiceArrays]):
    """A score for each choice."""

    model_type = BertForMultipleChoice

    def targets(self, features: Features[ChoiceArrays], windows: NDArray[np.int64], tokens: NDArray[np.int64]) -> Array:
        """Places of the right choices: (G,)."""
        return features.head_arrays.labels[features.examples_of(windows)]

    def logits(self, model: BertForMultipleChoice, batch: Batch) -> Tensor:
        """A logit for each choice, (W,)."""
        return model.packed_logits(batch.seqs).float()

    def loss(self, model: BertForMultipleChoice, logits: Tensor, batch: Batch) -> Tensor:
        """Mean cross entropy over the examples with a known choice."""
        rows = logits.view(len(batch.targets), -1)  # (G, C)
        return F.cross_entropy(rows, batch.targets, ignore_index=IGNORE_INDEX)

    def soft_loss(
        self, logits: Tensor, teacher_logits: Tensor, features: Features[ChoiceArrays], batch: Batch, temperature: float
    ) -> Tensor:
        """Divergence of the distributions over choices, mean over examples."""
        student, teacher = (values.view(len(batch.targets), -1) for values in (logits, teacher_logits))  # (G, C)
        return soft_target_loss(student, teacher, temperature)
