"""Sentence selection: which sentences of a document matter (Liu and Lapata 2019, sections 3.1 and 3.2).

Every sentence is read as `[CLS] sentence [SEP]`, all of a document in one sequence; their segments are A and B in turn.

Shapes: B documents, S length of a padded row, T tokens, W width of what the head reads.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.errors import ConfigError
from bert_core.heads.sequence_classification import ClassificationOutput
from bert_core.kernels.dropout import Dropout
from bert_core.losses import check_labels
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences


class BertForSentenceSelection(PretrainedModel):
    """BERT with a logit for each sentence, made from the state of its [CLS]; its sigmoid is the sentence's score.

    The linear layer reads the encoder directly. The paper puts two Transformer layers over the sentences of a document
    between both (section 3.2), which read nothing here that the encoder has not read.

    In a folder of the bert family transformers finds a classifier of tokens with one class.
    """

    def build(self, config: BertConfig) -> None:
        if config.causal_attention:
            raise ConfigError(
                "causal_attention is True: the [CLS] of a sentence stands before it and would see none of its words; "
                "select sentences with a model that looks both ways"
            )
        self.config = config.with_labels(["selected"])  # the width that Hugging Face reads off the labels
        self.bert = BertModel(config, seed=None, with_pooler=config.heads.has_head_layer)
        self.dropout = Dropout(config.token_dropout_prob)
        self.classifier = nn.Linear(config.token_state_size, 1)

    def packed_logits(self, seqs: PackedSequences, selected: Tensor | None = None) -> Tensor:
        """Logit of each token, of which those of the sentences' [CLS] count: (T,)."""
        states = self.dropout(self.bert.token_states(seqs, selected))  # (T, W)
        return self.classifier(states).squeeze(-1)  # type: ignore[no-any-return]

    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean binary cross entropy over the tokens whose label is not -100: (T,), (T,) → scalar."""
        is_labeled = labels != IGNORE_INDEX  # (T,)
        targets, weights = labels.where(is_labeled, 0).float(), is_labeled.float()
        # A sum over all tokens: picking the labeled ones would wait for the device to tell their number.
        total = F.binary_cross_entropy_with_logits(logits.float(), targets, weight=weights, reduction="sum")
        return total / weights.sum()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> ClassificationOutput:
        """Score the sentences of padded rows (B, S), with labels also the mean loss. The logits are (B, S).

        Args:
            labels: (B, S) 1 at the [CLS] of a sentence that matters, 0 at that of another, -100 at all other tokens.
        """
        seqs = self.bert.pack(input_ids, attention_mask, token_type_ids)
        if labels is not None:
            check_labels(labels, input_ids.shape, 2)
        logits = self.packed_logits(seqs)  # (T,)
        loss = None if labels is None else self.compute_loss(logits, seqs.pack(labels))
        return ClassificationOutput(loss, seqs.unpack(logits, input_ids.shape[1]))
