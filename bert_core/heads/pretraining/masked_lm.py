"""The head of masked language modeling: logits over the vocabulary (Devlin et al. 2018, section 3.1).

Shapes: T tokens, P predicted positions, E embedding size, H hidden, V vocabulary.
"""

import torch
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.heads.pretraining.base import LossSums, ObjectiveHead, PretrainingLabels
from bert_core.kernels.linear import Linear
from bert_core.kernels.linear_cross_entropy import linear_cross_entropy_sums, vocabulary_logits
from bert_core.layers.activations import ACTIVATIONS
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences


class VocabularyHead(nn.Module):
    """Logits over the vocabulary; the output matrix is the word embedding itself."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.embedding_size or config.hidden_size
        self.transform = Linear(config.hidden_size, width) if config.prediction_transform else None
        self.activation = ACTIVATIONS[config.hidden_act]
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps) if config.prediction_transform else None
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, word_embedding: Tensor) -> Tensor:
        """Logits: (P, H), (V, E) → (P, V)"""
        return vocabulary_logits(self.inner(hidden), word_embedding, self.bias)

    def inner(self, hidden: Tensor) -> Tensor:
        """Input of the output matrix: (P, H) → (P, E)"""
        if self.transform is None or self.norm is None:
            return hidden
        return self.norm(self.activation(self.transform(hidden)))  # type: ignore[no-any-return]

    def loss_sums(self, hidden: Tensor, word_embedding: Tensor, labels: Tensor) -> LossSums:
        """Cross entropy of the labels: (P, H), (V, E), (P,)"""
        return LossSums(*linear_cross_entropy_sums(self.inner(hidden), word_embedding, self.bias, labels.long()))


class MaskedLMHead(ObjectiveHead[VocabularyHead]):
    """Logits are made for the masked positions alone."""

    module_name = "prediction"

    def build(self, config: BertConfig) -> VocabularyHead:
        """Build the head, which every model has."""
        return VocabularyHead(config)

    def rows(self, bert: BertModel, seqs: PackedSequences, labels: PretrainingLabels) -> Tensor | None:
        """The masked positions: (P,)."""
        return labels.masked_positions

    def loss_sums(
        self, module: VocabularyHead, bert: BertModel, seqs: PackedSequences, hidden: Tensor, labels: PretrainingLabels
    ) -> LossSums:
        """Cross entropy of the hidden tokens, given the outputs in their places (P, H)."""
        return module.loss_sums(hidden, bert.embeddings.word.weight, labels.masked_labels)
