"""The heads over the vocabulary: masked language modeling (Devlin et al. 2018, section 3.1), and left to right (5.1).

Weights have the same names, so that one objective goes on from a model of the other.

Shapes: B sequences, T tokens, P predicted positions, E embedding size, H hidden, V vocabulary.
"""

import torch
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.heads.pretraining.base import LossSums, ObjectiveHead, PretrainingLabels
from bert_core.kernels.linear import Linear
from bert_core.kernels.linear_cross_entropy import linear_cross_entropy_sums, vocabulary_logits
from bert_core.layers.encoder_layer import ACTIVATIONS
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


class LeftToRightHead(MaskedLMHead):
    """Logits are made for T − B tokens: all but the last of each sequence."""

    def rows(self, bert: BertModel, seqs: PackedSequences, labels: PretrainingLabels) -> Tensor | None:
        """All tokens: a sequence's last one is not worth a choice."""
        return None

    def loss_sums(
        self, module: VocabularyHead, bert: BertModel, seqs: PackedSequences, hidden: Tensor, labels: PretrainingLabels
    ) -> LossSums:
        """Cross entropy of each token, given the output of the token before it."""
        num_followed = seqs.num_tokens - seqs.num_sequences  # T − B
        order = torch.arange(seqs.num_tokens, device=hidden.device)
        # The number is known beforehand, so that nothing waits for the device.
        sequence = order[: seqs.num_sequences].repeat_interleave(seqs.cu_seqlens.diff() - 1, output_size=num_followed)
        followed = order[:num_followed] + sequence  # (T − B,)
        next_tokens = seqs.input_ids.index_select(0, followed + 1)
        return module.loss_sums(hidden.index_select(0, followed), bert.embeddings.word.weight, next_tokens)
