"""BERT with the heads of its pretraining objectives.

Shapes: B sequences, S length of a padded row, T tokens, P predicted positions, H hidden, V vocabulary.
"""

from collections.abc import Collection, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.errors import DataError
from bert_core.heads.outputs import PretrainingOutput
from bert_core.heads.pretraining.base import LossSums, ObjectiveHead, PretrainingLabels
from bert_core.heads.pretraining.masked_lm import LeftToRightHead, MaskedLMHead, VocabularyHead
from bert_core.heads.pretraining.span_boundary import SpanBoundaryHead
from bert_core.losses import check_labels, cross_entropy_sums
from bert_core.model import BertModel
from bert_core.objectives import OBJECTIVES
from bert_core.packed_sequences import PackedSequences


class SentencePairHead(ObjectiveHead[nn.Linear]):
    """Two classes on the pooled first token of a pair (Devlin et al. 2018, 3.1; Lan et al. 2020, 3.1)."""

    module_name = "next_sentence"

    def build(self, config: BertConfig) -> nn.Linear | None:
        """The layer, where the model is pretrained with pairs of segments."""
        return nn.Linear(config.hidden_size, 2) if config.sentence_head else None

    def rows(self, bert: BertModel, seqs: PackedSequences, labels: PretrainingLabels) -> Tensor | None:
        """The tokens that stand for the pairs: (B,)."""
        return bert.pooled_tokens(seqs)

    def loss_sums(
        self, module: nn.Linear, bert: BertModel, seqs: PackedSequences, hidden: Tensor, labels: PretrainingLabels
    ) -> LossSums:
        logits = module(bert.pool(hidden))  # (B, 2)
        return LossSums(*cross_entropy_sums(logits, labels.sentence_labels.long()))


OBJECTIVE_HEADS: Mapping[str, ObjectiveHead[Any]] = {
    "masked_lm": MaskedLMHead(),
    "span_boundary": SpanBoundaryHead(),
    "next_sentence": SentencePairHead(),
    "sentence_order": SentencePairHead(),
    "left_to_right": LeftToRightHead(),
}
"""Heads by the names of `bert_core.objectives.OBJECTIVES`.

Losses are computed in this order, and their gradients added up in the reverse of it: another order would change the
last bits of a run that is resumed.
"""


class BertForPreTraining(PretrainedModel):
    """BERT with a head for tokens and, as its configuration says, for pairs of segments and for spans.

    `forward` takes padded rows and Hugging Face's argument names, for masked language modeling and pairs of segments
    (Devlin et al. 2018, section 3.1); `packed_loss_sums` takes packed sequences and any objectives.
    """

    prediction: VocabularyHead
    next_sentence: nn.Linear | None
    """None where the configuration has no `sentence_head`."""

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=config.sentence_head)
        for name in OBJECTIVES:  # the order in which weights are drawn
            head = OBJECTIVE_HEADS[name]
            if head.module_name not in self._modules:
                self.register_module(head.module_name, head.build(config))
        if config.sentence_head:
            self.config = config.with_labels(["LABEL_0", "LABEL_1"])  # the width that Hugging Face reads off the labels

    def packed_loss_sums(
        self, seqs: PackedSequences, labels: PretrainingLabels, objectives: Collection[str]
    ) -> dict[str, LossSums]:
        """Sums of the losses and of right predictions of a packed batch, by objective.

        Raises: DataError when the model has no head for an objective.
        """
        heads = {name: head for name, head in OBJECTIVE_HEADS.items() if name in objectives}
        for name, head in heads.items():
            if self._modules[head.module_name] is None:
                raise DataError(f"the model ({self.config.model_type}) has no head for {name}; leave it out")
        states = self.bert.encode_each(seqs, [head.rows(self.bert, seqs, labels) for head in heads.values()])
        return {
            name: head.loss_sums(self._modules[head.module_name], self.bert, seqs, hidden, labels)
            for (name, head), hidden in zip(heads.items(), states, strict=True)
        }

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
        """Loss and logits of padded rows (B, S). With any label there is a loss, and dense logits only on request.

        The loss is the mean over predicted tokens (label not -100, not padding) plus the mean over pairs of segments.

        Args:
            labels: (B, S) the tokens to predict, -100 elsewhere.
            next_sentence_label: (B,) 0 where B follows A, 1 where it does not.
            return_logits: give `prediction_logits` where there are labels, too.
        """
        seqs = self.bert.pack(input_ids, attention_mask, token_type_ids)
        hidden = self.bert.encode(seqs)  # (T, H)
        relationship = None
        if self.next_sentence is not None:
            first = hidden.index_select(0, self.bert.pooled_tokens(seqs))  # (B, H)
            relationship = self.next_sentence(self.bert.pool(first))  # (B, 2)
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
