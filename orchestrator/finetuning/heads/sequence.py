"""Heads on a sequence's [CLS] in training: classes, numbers, labels, choices.

Shapes: W windows, C classes, E numbers beside the text; for multiple choice a window for each choice, G examples, C
choices of each.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.distillation import soft_target_loss
from bert_core.heads import BertForMultipleChoice, BertForSequenceClassification
from orchestrator.finetuning.heads.base import Batch, HeadTraining, Windows, build_class_loss
from orchestrator.specs import RecipeSpec
from orchestrator.tasks.features import Array, Features
from orchestrator.tasks.types.text import TextArrays


class SequenceHead(HeadTraining[BertForSequenceClassification, TextArrays]):
    """A linear layer on the pooled [CLS] of each window."""

    model_type = BertForSequenceClassification

    def recognizes(self, folder: Path, config: BertConfig, architectures: Sequence[str]) -> bool:
        """Whether a folder has this class and the problem: of one that names none, a single output is a number."""
        problem = "regression" if config.num_labels == 1 else "single_label_classification"
        if config.problem_type == "multi_label_classification":
            problem = config.problem_type
        return super().recognizes(folder, config, architectures) and problem == self.problem_type

    def logits(self, model: BertForSequenceClassification, batch: Batch) -> Tensor:
        return model.packed_logits(batch.seqs, batch.tabular_features, batch.states).float()  # (W, C)

    def prepare_loss(
        self, model: BertForSequenceClassification, features: Features[TextArrays], recipe: RecipeSpec
    ) -> None:
        model.window_pooling = None if recipe.long_documents == "cut" else recipe.long_documents
        model.class_loss = build_class_loss(model, recipe, features.head_arrays.labels)

    def pool(self, model: BertForSequenceClassification, logits: Tensor, batch: Batch) -> Tensor:
        """Logits of each example, from those of its windows: (W, C) → (G, C)."""
        if model.window_pooling is None or batch.group_sizes is None:
            return logits
        pooled: Tensor = torch.segment_reduce(logits, model.window_pooling, lengths=batch.group_sizes, unsafe=True)
        return pooled


class ClassificationHead(SequenceHead):
    """One class for each text."""

    problem_type = "single_label_classification"

    def count_labels(self, model: BertForSequenceClassification, targets: Array) -> float:
        return model.class_loss.total_weight(targets)

    def loss(self, model: BertForSequenceClassification, logits: Tensor, batch: Batch) -> Tensor:
        return model.class_loss.of_classes(self.pool(model, logits, batch), batch.targets)

    def soft_loss(self, logits: Tensor, teacher_logits: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Divergence of the distributions over classes, mean over windows."""
        return soft_target_loss(logits, teacher_logits, temperature)


class RegressionHead(SequenceHead):
    """A number for each text."""

    problem_type = "regression"

    def with_labels(self, config: BertConfig, labels: Sequence[str]) -> BertConfig:
        """One output, by the name that it has in transformers' model cards."""
        return config.with_labels(["score"], self.problem_type)

    def loss(self, model: BertForSequenceClassification, logits: Tensor, batch: Batch) -> Tensor:
        return F.mse_loss(self.pool(model, logits, batch).squeeze(-1), batch.targets)

    def soft_loss(self, logits: Tensor, teacher_logits: Tensor, batch: Batch, temperature: float) -> Tensor:
        return F.mse_loss(logits, teacher_logits)


class MultiLabelHead(SequenceHead):
    """Any number of labels for each text."""

    problem_type = "multi_label_classification"

    def targets(self, features: Features[TextArrays], windows: Windows, tokens: NDArray[np.int64]) -> Array:
        return super().targets(features, windows, tokens).astype(np.float32)  # (W, C)

    def loss(self, model: BertForSequenceClassification, logits: Tensor, batch: Batch) -> Tensor:
        return model.class_loss.of_label_sets(self.pool(model, logits, batch), batch.targets)

    def soft_loss(self, logits: Tensor, teacher_logits: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Divergence for each label, which is a choice between it and its absence, whose logit is 0."""
        student, teacher = (F.pad(values.reshape(-1, 1), (0, 1)) for values in (logits, teacher_logits))  # (W·C, 2)
        return soft_target_loss(student, teacher, temperature)


class MultipleChoiceHead(HeadTraining[BertForMultipleChoice, TextArrays]):
    """A score for each choice."""

    model_type = BertForMultipleChoice

    def loss(self, model: BertForMultipleChoice, logits: Tensor, batch: Batch) -> Tensor:
        rows = logits.view(len(batch.targets), -1)  # (G, C)
        return F.cross_entropy(rows, batch.targets, ignore_index=IGNORE_INDEX)

    def soft_loss(self, logits: Tensor, teacher_logits: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Divergence of the distributions over choices, mean over examples."""
        student, teacher = (values.view(len(batch.targets), -1) for values in (logits, teacher_logits))  # (G, C)
        return soft_target_loss(student, teacher, temperature)
