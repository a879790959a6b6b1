"""A class for each token.

Shapes: B sequences, S slots of a padded row, T tokens, H hidden, C classes.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.heads.outputs import ClassificationOutput
from bert_core.masking import IGNORED
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences
from bert_core.pretrained import PretrainedModel


class BertForTokenClassification(PretrainedModel):
    """A class for each token."""

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=False)
        self.dropout = nn.Dropout(config.head_dropout_prob)
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
