"""The head of next-sentence prediction and sentence order: two classes for a pair of segments.

Devlin et al. 2018, section 3.1; Lan et al. 2020, section 3.1. A model has one such head, whatever the question.

Shapes: B sequences, T tokens, H hidden.
"""

from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.heads.pretraining.base import LossSums, ObjectiveHead, PretrainingLabels
from bert_core.losses import cross_entropy_sums
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences


class SentencePairHead(ObjectiveHead[nn.Linear]):
    """A linear layer on the pooled first token."""

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
        """Cross entropy of the sentence labels."""
        logits = module(bert.pool(hidden))  # (B, 2)
        return LossSums(*cross_entropy_sums(logits, labels.sentence_labels.long()))
