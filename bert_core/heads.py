"""BERT with a head: pretraining, sequence classification, token classification, question answering.

Each has a padded interface, `forward` with Hugging Face's argument names, and a packed one for training at full speed.

Shapes: B sequences, S slots of a padded row, T tokens, P predicted positions, H hidden, V vocabulary, C classes.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.losses import PretrainingSums, cross_entropy_sums, sequence_classification_loss, span_loss
from bert_core.masking import IGNORED
from bert_core.model import ACTIVATIONS, BertModel
from bert_core.packed_sequences import PackedSequences
from bert_core.pretrained import PretrainedModel


@dataclass(frozen=True)
class PretrainingOutput:
    """Mean losses added up, and logits where they were asked for."""

    loss: Tensor | None
    prediction_logits: Tensor | None
    """(B, S, V), zero at padding"""
    seq_relationship_logits: Tensor
    """(B, 2)"""


@dataclass(frozen=True)
class ClassificationOutput:
    """Mean loss where labels were given, and the logits."""

    loss: Tensor | None
    logits: Tensor
    """(B, C) for sequences; (B, S, C) for tokens, zero at padding"""


@dataclass(frozen=True)
class QuestionAnsweringOutput:
    """Mean loss where positions were given, and the logits of an answer's first and last token."""

    loss: Tensor | None
    start_logits: Tensor
    """(B, S)"""
    end_logits: Tensor
    """(B, S)"""


class MaskedTokenHead(nn.Module):
    """Logits over the vocabulary; the output matrix is the word embedding itself."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, word_embedding: Tensor) -> Tensor:
        x = self.norm(self.activation(self.transform(hidden)))  # (P, H)
        return F.linear(x, word_embedding, self.bias)  # (P, V)


class BertForPreTraining(PretrainedModel):
    """Masked tokens and next sentence (Devlin et al. 2018, section 3.1)."""

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None)
        self.prediction = MaskedTokenHead(config)
        self.next_sentence = nn.Linear(config.hidden_size, 2)

    def sums(
        self,
        seqs: PackedSequences,
        masked_positions: Tensor,
        masked_labels: Tensor,
        next_sentence_labels: Tensor | None = None,
    ) -> PretrainingSums:
        """Losses and right guesses of a packed batch. Logits are made for the masked positions alone.

        Args:
            masked_positions: (P,) places among the T tokens.
            masked_labels: (P,) the tokens that stood there.
            next_sentence_labels: (B,) 0 where B follows A, 1 where it is random; empty or None to leave it out.
        """
        hidden = self.bert.encode(seqs)  # (T, H)
        mlm = cross_entropy_sums(self.predict(hidden.index_select(0, masked_positions)), masked_labels.long())
        if next_sentence_labels is None or next_sentence_labels.numel() == 0:
            zero = torch.zeros_like(mlm[1])
            return PretrainingSums(*mlm, zero, zero, zero)
        logits = self.next_sentence(self.bert.pool(hidden, seqs))  # (B, 2)
        return PretrainingSums(*mlm, *cross_entropy_sums(logits, next_sentence_labels.long()))

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
        seqs = PackedSequences.from_padded(input_ids, attention_mask, token_type_ids)
        hidden = self.bert.encode(seqs)  # (T, H)
        relationship = self.next_sentence(self.bert.pool(hidden, seqs))  # (B, 2)
        losses = []
        if labels is not None:
            packed_labels = seqs.pack(labels)  # (T,)
            masked = (packed_labels != IGNORED).nonzero().squeeze(1)  # (P,)
            losses.append(F.cross_entropy(self.predict(hidden.index_select(0, masked)).float(), packed_labels[masked]))
        if next_sentence_label is not None:
            losses.append(F.cross_entropy(relationship.float(), next_sentence_label.view(-1), ignore_index=IGNORED))
        logits = None
        if return_logits or not losses:
            logits = seqs.unpack(self.predict(hidden), input_ids.shape[1])  # (B, S, V)
        return PretrainingOutput(torch.stack(losses).sum() if losses else None, logits, relationship)


def _classifier_dropout(config: BertConfig) -> nn.Dropout:
    own = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if own is None else own)


class BertForSequenceClassification(PretrainedModel):
    """A class, several classes or a number for each sequence, as `config.problem_type` says."""

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def packed_logits(self, seqs: PackedSequences) -> Tensor:
        """(B, C)"""
        pooled = self.bert.pool(self.bert.encode(seqs), seqs)  # (B, H)
        logits: Tensor = self.classifier(self.dropout(pooled))
        return logits

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> ClassificationOutput:
        """For padded rows."""
        logits = self.packed_logits(PackedSequences.from_padded(input_ids, attention_mask, token_type_ids))
        if labels is None:
            return ClassificationOutput(None, logits)
        return ClassificationOutput(sequence_classification_loss(logits, labels, self.config.problem_type), logits)


class BertForTokenClassification(PretrainedModel):
    """A class for each token."""

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=False)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def packed_logits(self, seqs: PackedSequences) -> Tensor:
        """(T, C)"""
        logits: Tensor = self.classifier(self.dropout(self.bert.encode(seqs)))
        return logits

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> ClassificationOutput:
        """For padded rows; padding takes no part in the loss, whatever its label."""
        seqs = PackedSequences.from_padded(input_ids, attention_mask, token_type_ids)
        logits = self.packed_logits(seqs)  # (T, C)
        loss = None if labels is None else F.cross_entropy(logits.float(), seqs.pack(labels), ignore_index=IGNORED)
        return ClassificationOutput(loss, seqs.unpack(logits, input_ids.shape[1]))


class BertForQuestionAnswering(PretrainedModel):
    """First and last token of the answer (Devlin et al. 2018, section 4.2)."""

    def build(self, config: BertConfig) -> None:
        self.config = config.with_labels(["LABEL_0", "LABEL_1"])  # the width that Hugging Face reads off the labels
        self.bert = BertModel(config, seed=None, with_pooler=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    def packed_logits(self, seqs: PackedSequences) -> Tensor:
        """(T, 2): start and end"""
        logits: Tensor = self.qa_outputs(self.bert.encode(seqs))
        return logits

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
    ) -> QuestionAnsweringOutput:
        """For padded rows. Padding has logits here and takes part in the softmax, as in the reference's loss;

        without padding: `packed_logits`.
        """
        seqs = PackedSequences.from_padded(input_ids, attention_mask, token_type_ids, keep_padding=True)
        start, end = self.packed_logits(seqs).view(*input_ids.shape, 2).unbind(-1)  # (B, S) each
        if start_positions is None or end_positions is None:
            return QuestionAnsweringOutput(None, start, end)
        return QuestionAnsweringOutput(span_loss(start, end, start_positions, end_positions), start, end)
