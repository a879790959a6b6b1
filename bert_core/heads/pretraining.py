"""Masked tokens, and pairs of segments: next sentence or sentence order.

Shapes: B sequences, S slots of a padded row, T tokens, P predicted positions, E embedding size, H hidden, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.heads.outputs import PretrainingOutput
from bert_core.heads.span_boundary import SpanBoundaryHead
from bert_core.kernels.linear import Linear
from bert_core.kernels.linear_cross_entropy import linear_cross_entropy_sums
from bert_core.losses import PretrainingSums, check_labels, cross_entropy_sums
from bert_core.model import ACTIVATIONS, BertModel
from bert_core.packed_sequences import PackedSequences


class MaskedTokenHead(nn.Module):
    """Logits over the vocabulary; the output matrix is the word embedding itself."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.embedding_size or config.hidden_size
        self.has_transform = config.prediction_transform
        if self.has_transform:
            self.transform = Linear(config.hidden_size, width)
            self.activation = ACTIVATIONS[config.hidden_act]
            self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, word_embedding: Tensor) -> Tensor:
        """Logits: (P, H), (V, E) → (P, V)"""
        return F.linear(self.inner(hidden), word_embedding, self.bias)

    def inner(self, hidden: Tensor) -> Tensor:
        """What is multiplied by the word embedding: (P, H) → (P, E)"""
        return self.norm(self.activation(self.transform(hidden))) if self.has_transform else hidden


class BertForPreTraining(PretrainedModel):
    """Masked tokens and, where `config.sentence_head`, pairs of segments (Devlin et al. 2018, section 3.1).

    With `config.span_boundary_objective` the masked tokens are predicted from their span's borders as well.
    """

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=config.sentence_head)
        self.prediction = MaskedTokenHead(config)
        if config.sentence_head:
            self.config = config.with_labels(["LABEL_0", "LABEL_1"])  # the width that Hugging Face reads off the labels
            self.next_sentence = nn.Linear(config.hidden_size, 2)
        if config.span_boundary_objective:
            self.span_boundary = SpanBoundaryHead(config)

    def sums(
        self,
        seqs: PackedSequences,
        masked_positions: Tensor,
        masked_labels: Tensor,
        sentence_labels: Tensor | None = None,
    ) -> PretrainingSums:
        """Losses and right guesses of a packed batch. Logits are made for the masked positions alone.

        Args:
            masked_positions: (P,) places among the T tokens, ascending.
            masked_labels: (P,) the tokens that stood there.
            sentence_labels: (B,) 0 where B follows A or both are in order, 1 where B is random or they are swapped;
                empty or None to leave it out.
        """
        hidden = self.bert.encode(seqs)  # (T, H)
        labels = masked_labels.long()
        word_embedding = self.bert.embeddings.word.weight
        inner = self.prediction.inner(hidden.index_select(0, masked_positions))  # (P, E)
        mlm = linear_cross_entropy_sums(inner, word_embedding, self.prediction.bias, labels)
        zero = torch.zeros_like(mlm[1])
        spans = zero
        if self.config.span_boundary_objective:
            inner, labels = self.span_boundary(hidden, masked_positions, labels)
            spans = linear_cross_entropy_sums(inner, word_embedding, self.span_boundary.bias, labels)[0]
        if sentence_labels is None or sentence_labels.numel() == 0:
            return PretrainingSums(*mlm, zero, zero, zero, spans)
        logits = self.next_sentence(self.bert.pool(hidden, seqs))  # (B, 2)
        return PretrainingSums(*mlm, *cross_entropy_sums(logits, sentence_labels.long()), spans)

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits over the vocabulary: (P, H) → (P, V)."""
        logits: Tensor = self.prediction(hidden, self.bert.embeddings.word.weight)
        return logits

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        return_logits: bool = False,
    ) -> PretrainingOutput:
        """For padded rows. With any label there is a loss, and dense logits only with `return_logits`.

        The loss is the mean over predicted tokens (label not -100, not padding) plus the mean over sentences.
        """
        seqs = self.bert.pack(input_ids, attention_mask, token_type_ids)
        hidden = self.bert.encode(seqs)  # (T, H)
        relationship = None
        if self.config.sentence_head:
            relationship = self.next_sentence(self.bert.pool(hidden, seqs))  # (B, 2)
        losses = []
        if labels is not None:
            check_labels(labels, input_ids.shape, self.config.vocab_size)
            packed_labels = seqs.pack(labels)  # (T,)
            masked = (packed_labels != IGNORE_INDEX).nonzero().squeeze(1)  # (P,)
            losses.append(F.cross_entropy(self.predict(hidden.index_select(0, masked)).float(), packed_labels[masked]))
        if next_sentence_label is not None and relationship is not None:
            check_labels(next_sentence_label.view(-1), relationship.shape[:1], 2)
            losses.append(
                F.cross_entropy(relationship.float(), next_sentence_label.view(-1), ignore_index=IGNORE_INDEX)
            )
        logits = None
        if return_logits or not losses:
            logits = seqs.unpack(self.predict(hidden), input_ids.shape[1])  # (B, S, V)
        return PretrainingOutput(torch.stack(losses).sum() if losses else None, logits, relationship)
