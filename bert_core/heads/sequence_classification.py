"""A class, several classes or a number for each sequence.

Shapes: B sequences, S slots of a padded row, H hidden, C classes.
"""

from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.heads.outputs import ClassificationOutput
from bert_core.losses import sequence_classification_loss
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences
from bert_core.pretrained import PretrainedModel


class BertForSequenceClassification(PretrainedModel):
    """A class, several classes or a number for each sequence, as `config.problem_type` says."""

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=True)
        self.dropout = nn.Dropout(config.head_dropout_prob)
        self.classifier = nn.Linear(config.summary_width, config.num_labels)

    def packed_logits(self, seqs: PackedSequences) -> Tensor:
        """(B, C)"""
        first = self.dropout if self.config.family.drops_before_summary else None
        pooled = self.bert.pool(self.bert.head_states(seqs), seqs, first)  # (B, H)
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
        logits = self.packed_logits(self.bert.pack(input_ids, attention_mask, token_type_ids))
        if labels is None:
            return ClassificationOutput(None, logits)
        return ClassificationOutput(sequence_classification_loss(logits, labels, self.config.problem_type), logits)
