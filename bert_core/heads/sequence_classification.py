"""Classification of sequences: a class, several classes or a number for each, or the best of several choices.

Shapes: B sequences, or questions of C choices, S length of a padded row, H hidden, E tabular features, C classes,
K labels.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.errors import DataError
from bert_core.kernels.dropout import Dropout
from bert_core.losses import ClassLoss, check_labels, sequence_classification_loss
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences


@dataclass(frozen=True)
class ClassificationOutput:
    loss: Tensor | None
    """Mean loss; None without labels."""
    logits: Tensor
    """Logits of the classes: (B, C) for sequences; (B, S, C) for tokens, (B, S) for one class, zero at padding."""


class BertForSequenceClassification(PretrainedModel):
    """BERT with a class, several classes or a number for each sequence, as `config.problem_type` says.

    With `config.num_tabular_features`, it reads numbers beside the text: they and the pooled output, concatenated, pass
    through one layer to the classifier (Gu and Budhwani 2021: concatenation, then a perceptron).
    """

    class_loss = ClassLoss()
    """Loss of classes and labels in fine-tuning; `forward` has that of transformers."""

    window_pooling: Literal["mean", "max"] | None = None
    """Pooling of the logits of an example's windows in fine-tuning, where examples have several."""

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=True)
        self.dropout = Dropout(config.head_dropout_prob)
        # A layer of its own: at an encoder's learning rate, a single weight for each number would hardly move.
        self.combine = None
        if config.num_tabular_features:
            self.combine = nn.Linear(config.pooled_size + config.num_tabular_features, config.pooled_size)
        self.classifier = nn.Linear(config.pooled_size, config.num_labels)

    def packed_logits(
        self, seqs: PackedSequences, tabular_features: Tensor | None = None, selected: Tensor | None = None
    ) -> Tensor:
        """Logits of each sequence: (B, C).

        Args:
            tabular_features: (B, E) numbers beside the text, for a model that reads them and for no other.
            selected: as that of `BertModel.head_states`.

        Raises: DataError when `tabular_features` have another shape.
        """
        first = self.dropout if self.config.heads.dropout_before_pooler else None
        pooled = self.bert.pooled_states(seqs, first, selected)  # (B, H)
        self._check_tabular_features(tabular_features, seqs.num_sequences)
        if self.combine is not None and tabular_features is not None:
            pooled = F.gelu(self.combine(torch.cat([pooled, tabular_features], dim=-1)))  # (B, H)
        logits: Tensor = self.classifier(self.dropout(pooled))
        return logits

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        tabular_features: Tensor | None = None,
    ) -> ClassificationOutput:
        """Classify padded rows; with labels there is a mean loss."""
        logits = self.packed_logits(self.bert.pack(input_ids, attention_mask, token_type_ids), tabular_features)
        if labels is None:
            return ClassificationOutput(None, logits)
        return ClassificationOutput(sequence_classification_loss(logits, labels, self.config.problem_type), logits)

    def _check_tabular_features(self, tabular_features: Tensor | None, num_sequences: int) -> None:
        wanted = (num_sequences, self.config.num_tabular_features) if self.config.num_tabular_features else None
        given = None if tabular_features is None else tuple(tabular_features.shape)
        if given != wanted:
            raise DataError(f"tabular_features have the shape {given}; this model reads {wanted} beside the text")


class BertForMultipleChoice(PretrainedModel):
    """BERT with a score for each of several continuations (Devlin et al. 2018, section 4.4).

    Each is read with its context; the softmax runs over the choices of a question.
    """

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=True)
        self.dropout = Dropout(config.head_dropout_prob)
        projects = config.heads.choice_projection
        self.choice_projection = nn.Linear(config.pooled_size, config.num_labels) if projects else None
        self.classifier = nn.Linear(config.num_labels if projects else config.pooled_size, 1)

    def packed_logits(self, seqs: PackedSequences, selected: Tensor | None = None) -> Tensor:
        """Score each sequence, a question read with one of its choices: (B·C,)."""
        pooled = self.dropout(self.bert.pooled_states(seqs, selected=selected))  # (B·C, H)
        if self.choice_projection is not None:
            pooled = self.choice_projection(pooled)  # (B·C, K)
        return self.classifier(pooled).squeeze(-1)  # type: ignore[no-any-return]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> ClassificationOutput:
        """Score padded rows (B, C, S), with labels (B,) also the mean loss; the logits are (B, C)."""
        mask, types = (None if ids is None else ids.flatten(0, 1) for ids in (attention_mask, token_type_ids))
        seqs = self.bert.pack(input_ids.flatten(0, 1), mask, types)
        logits = self.packed_logits(seqs).view(input_ids.shape[:2])  # (B, C)
        if labels is None:
            return ClassificationOutput(None, logits)
        check_labels(labels, logits.shape[:1], logits.shape[1])
        return ClassificationOutput(F.cross_entropy(logits.float(), labels, ignore_index=IGNORE_INDEX), logits)
