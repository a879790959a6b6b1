"""Multiple choice: the best of several continuations, each read with its context (Devlin et al. 2018, section 4.4).

Shapes: B questions, C choices of each, S length of a padded row, H hidden, K labels.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.heads.outputs import ClassificationOutput
from bert_core.kernels.dropout import Dropout
from bert_core.losses import check_labels
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences


class BertForMultipleChoice(PretrainedModel):
    """BERT with a score for each choice; the softmax runs over the choices of a question."""

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=True)
        self.dropout = Dropout(config.head_dropout_prob)
        self.choice_projection = nn.Linear(config.pooled_size, config.num_labels) if config.choice_projection else None
        self.classifier = nn.Linear(config.num_labels if config.choice_projection else config.pooled_size, 1)

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
